"""Which brokers have no tap of their coordinators in a run folder, so that what they did there is not known (L6).

Owns: the rule. A broker that ran with a tap has all three files from its start on, so a file that is missing was
removed, or the broker had no tap (`harrow.tap=false`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import broker_files, broker_folders, node_id_of

from .. import run_folder
from .coordinator_rows import FILES


def untapped_brokers(run: Path) -> list[int]:
    """Return the brokers of the run without one of the files, by node id."""
    cluster = run / run_folder.CLUSTER
    facts: dict[str, Any] = run_folder.read_run(run)
    missing: set[int] = set()
    nodes = {node_id_of(folder) for folder in broker_folders(cluster)}
    nodes.update(int(node) for node in facts.get("log_dirs", {}))
    if len(nodes) < int(facts.get("brokers", 0)):
        nodes.update(range(1, int(facts["brokers"]) + 1))
    for name in FILES.values():
        tapped = {node_id_of(path.parent) for path in broker_files(cluster, name)}
        missing.update(nodes - tapped)
    return sorted(missing)
