"""What a run records, and which of it is in the run folder: the evidence that the checks of a verdict need (L6).

Owns: `Recording`, the kinds of evidence; `recordings_of`, which of them a run folder has completely, which the run's
backend does not record at all, and which are lost. `checks/needs.py` says what each anomaly needs.

`run.json` says what to expect: the number of brokers, what the backend does not record (`unrecorded`), the number of
history files and chaos blocks, and whether the application promised something. So a file that is missing is noticed,
also when the test was killed before its verdict. Without `run.json` nothing is known to be complete.

A broker that runs with a tap has all its tap files and its trace from its start on; a file that is missing was removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import TAP, TAP_NAMES, TRACE, broker_folders, node_id_of

from .. import run_folder
from ..wording import counted
from .coordinator_rows import FILES


class Recording(StrEnum):
    """A kind of evidence; the value is its name in `unrecorded` of run.json."""

    FINAL_READ = "final-read"
    """What fresh clients read when the run ended, of each partition."""
    REPLICA_LOGS = "replica-logs"
    """The log of every replica, of each partition."""
    LOG = "log"
    """The log of one replica, of each partition: what the brokers appended."""
    TAPS = "taps"
    """What brokers acknowledged, delivered and refused."""
    COORDINATOR_TAPS = "coordinator-taps"
    """Committed offsets, transactions, owners of partitions, watermarks that leaders said, records of share groups."""
    BROKER_EVENTS = "broker-events"
    """Events in the traces of the brokers: elections, ISRs, what was removed from logs."""
    WAITING_REQUESTS = "waiting-requests"
    """Requests that wait for too long, in the traces of the brokers or of the proxy before them."""
    GROUP_STATES = "group-states"
    """The states of consumer groups when the run ended."""
    OPERATIONS = "operations"
    """What clients with a recorder sent and read."""
    FAULTS = "faults"
    """What the nemesis did."""
    PROMISES = "promises"
    """What the checks of the application's promises found."""


OF_PARTITIONS = frozenset({Recording.FINAL_READ, Recording.REPLICA_LOGS, Recording.LOG})
"""Kinds that a folder may have for some partitions only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recordings:
    """What is in one run folder. A kind is in `unrecorded`, or in `lost`, or is complete."""

    unrecorded: frozenset[Recording] = frozenset()
    """What the backend of the run does not record."""
    lost: Mapping[Recording, str] = field(default_factory=dict[Recording, str])
    """What is missing although the run records it, each with the files, for a sentence "the run folder has no …"."""
    problems: Sequence[str] = ()
    """What prevents knowing which files there should be."""

    @property
    def complete(self) -> frozenset[Recording]:
        """The kinds of which every file is there; of each partition a folder may still lack some."""
        return frozenset(Recording) - self.unrecorded - frozenset(self.lost)


NO_RUN_FILE = (
    f"the run folder has no {run_folder.RUN} that can be read, so it is not known what the run recorded: judge the "
    "folder as the run wrote it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunFiles:
    """What a run folder has, looked at once."""

    run: Path
    facts: Mapping[str, Any]
    """run.json; empty without it."""
    nodes: frozenset[int]
    """The run's brokers, also those whose folder is missing."""
    names: Mapping[int, frozenset[str]]
    """The names in the folder of each broker that has one."""

    @classmethod
    def of(cls, run: Path) -> _RunFiles:
        """Look at a run folder."""
        facts = run_folder.read_run(run)
        names = {
            node_id_of(folder): frozenset(os.listdir(folder)) for folder in broker_folders(run / run_folder.CLUSTER)
        }
        nodes = {*names, *map(int, facts.get("log_dirs", {}))}
        if len(nodes) < int(facts.get("brokers", 0)):
            nodes.update(range(1, int(facts["brokers"]) + 1))
        return cls(run=run, facts=facts, nodes=frozenset(nodes), names=names)

    def without(self, *files: str) -> list[int]:
        """Return the brokers that lack one of these files in their folder."""
        wanted = set(files)
        return sorted(node for node in self.nodes if not wanted <= self.names.get(node, frozenset()))


def recordings_of(run: Path) -> Recordings:
    """Look at the files of a run folder; their contents are read by others."""
    files = _RunFiles.of(run)
    unrecorded = frozenset(Recording(name) for name in files.facts.get("unrecorded", ()) if name in set(Recording))
    lost: dict[Recording, str] = {}
    for kind, missing in _LOOKS.items():
        if kind not in unrecorded and (text := missing(files)):
            lost[kind] = text
    problems = () if files.facts else (NO_RUN_FILE,)
    return Recordings(unrecorded=unrecorded, lost=lost, problems=problems)


def untapped_brokers(run: Path) -> list[int]:
    """Return the brokers of the run without one of the coordinators' tap files, by node id."""
    return _RunFiles.of(run).without(*FILES.values())


def _of_brokers(what: str, nodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, nodes))
    return f"{what} of {counted(len(nodes), 'broker')} ({listed})" if nodes else ""


def _files_of_brokers(what: str, *names: str) -> Callable[[_RunFiles], str]:
    def missing(files: _RunFiles) -> str:
        if not files.nodes:
            return f"{what} of any broker"
        return _of_brokers(what, files.without(*names))

    return missing


def _missing_logs(files: _RunFiles) -> str:
    folders = run_folder.replica_folders(files.run)
    nodes = sorted(files.nodes)
    empty = [node for node in nodes if not any(map(Path.is_dir, folders.get(node, ())))]
    return _of_brokers("data folder", empty) if nodes else "data folder of any broker"


def _missing_log(files: _RunFiles) -> str:
    folders = run_folder.replica_folders(files.run).values()
    there = any(folder.is_dir() for of_broker in folders for folder in of_broker)
    return "" if there else "data folder of any broker"


def _missing_histories(files: _RunFiles) -> str:
    expected = int(files.facts.get("histories", 0))
    there = len(run_folder.operation_files(files.run / run_folder.HISTORY)) if expected else 0
    gone = expected - there
    return f"{run_folder.HISTORY}/ of {counted(gone, 'recording client')}" if gone > 0 else ""


def _missing_faults(files: _RunFiles) -> str:
    planned = int(files.facts.get("chaos_blocks", 0)) or len(run_folder.schedule_files(files.run))
    return run_folder.FAULTS if planned and not (files.run / run_folder.FAULTS).exists() else ""


def _missing_promises(files: _RunFiles) -> str:
    rows: list[Mapping[str, object]] = files.facts.get("verdicts") or [files.facts]
    promised = [number for number, row in enumerate(rows, 1) if row.get("promised")]
    names = [run_folder.numbered(run_folder.PROMISE_FINDINGS, number) for number in promised]
    return next((name for name in names if not (files.run / name).exists()), "")


def _missing_groups(files: _RunFiles) -> str:
    return "" if (files.run / run_folder.GROUPS).exists() else run_folder.GROUPS


def _missing_final_read(files: _RunFiles) -> str:
    return "" if run_folder.operation_files(files.run / run_folder.DRAIN) else "final read"


_LOOKS: Mapping[Recording, Callable[[_RunFiles], str]] = {
    Recording.FINAL_READ: _missing_final_read,
    Recording.REPLICA_LOGS: _missing_logs,
    Recording.LOG: _missing_log,
    Recording.TAPS: _files_of_brokers("tap of records", TAP, TAP_NAMES),
    Recording.COORDINATOR_TAPS: _files_of_brokers("tap of the coordinators", *FILES.values()),
    Recording.BROKER_EVENTS: _files_of_brokers("trace", TRACE),
    Recording.WAITING_REQUESTS: _files_of_brokers("trace", TRACE),
    Recording.GROUP_STATES: _missing_groups,
    Recording.OPERATIONS: _missing_histories,
    Recording.FAULTS: _missing_faults,
    Recording.PROMISES: _missing_promises,
}
"""For each kind: what is missing of it, in words; empty when it is complete."""
