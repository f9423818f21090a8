"""When a cluster has converged: pure rules on what brokers report, and the wait for them.

Used for Harrow's own brokers (`supervisor.py`) and for foreign ones. A state is a row for each replica of a broker,
with `topic`, `partition`, `leo`, `hw`, `leader_epoch`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .errors import ClusterError
from .view import ClusterView

POLL_S = 0.01


def isr_not_full(cluster: ClusterView) -> str:
    """Return a partition without a leader or with replicas outside its ISR; empty when there is none."""
    for where, view in cluster.partitions():
        if view.leader < 0 or set(view.isr) != set(view.replicas):
            return f"{where}: leader {view.leader}, ISR {list(view.isr)} of {list(view.replicas)}"
    return ""


def unconverged(
    state: Mapping[int, Sequence[dict[str, Any]]], cluster: ClusterView, *, followers: bool = True
) -> str:
    """Return a partition whose LEOs, epochs or HWs differ; `followers`: whether the HWs of followers count."""
    replicas: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
    for node_id, partitions in state.items():
        for row in partitions:
            replicas.setdefault((row["topic"], row["partition"]), {})[node_id] = row
    for where, view in cluster.partitions():
        rows = replicas.get(where, {})
        if set(rows) != set(view.replicas):
            return f"{where}: replicas {sorted(rows)} of {list(view.replicas)} answer"
        ends = {(row["leo"], row["leader_epoch"]) for row in rows.values()}
        judged = rows.values() if followers else [rows[view.leader]]
        if len(ends) > 1 or any(row["leo"] != row["hw"] for row in judged):
            found = sorted(
                (row["leo"], row["hw"] or -1, row["leader_epoch"]) for row in rows.values()
            )
            return f"{where}: (LEO, HW, leader epoch) {found}"
    return ""


def wait_until(
    what: str, lacking: Callable[[], str], timeout_s: float, *, poll_s: float = POLL_S
) -> None:
    """Wait until `lacking` returns no reason; ClusterError with the last reason after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            reason = lacking()
        except ClusterError as error:  # a process is starting or stopping
            reason = str(error)
        if not reason:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"no {what} after {timeout_s:.1f} s: {reason}")
        time.sleep(poll_s)
