"""Which faults touched a client of the run, whatever topics are judged (L6).

The kernels count the operations on the judged topics that overlap a fault (`kernels/overlap.py`). A fault may touch the
application elsewhere: the leader of its input topic, the coordinator of its group, its own process. A fault has met an
operation, too, when its evidence or a tap shows one of these in its time:

* a batch that a client sent or received, of any topic, from the creation of its oldest record on;
* a request of a client, from when the broker read it to its response or its end without one;
* a connection of a client that was opened or closed, or that ended with its broker;
* polls and heartbeats of a client, which have no rows of their own: from their first to their last on a broker;
* a program of the test that the fault killed, paused or ended.

Harrow's own clients do not count. Only faults that met no operation on the judged topics are looked up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from harrow.cluster.tap.layouts import PRODUCED
from harrow.faults.fault_kinds import recorded_kind

from .. import run_folder
from ..histories.request_rows import of_users, read_connections, spans_of_clients
from ..histories.tap import read_tap
from .fault_windows import FaultWindow

Times = npt.NDArray[np.int64]


def touched_faults(run: Path, windows: Sequence[FaultWindow], started_ns: int) -> set[str]:
    """Return the ids of those faults that touched a client; HarrowError or OSError for a file that cannot be read."""
    touched = {window.id for window in windows if recorded_kind(window.kind).touches_programs}
    left = [window for window in windows if window.id not in touched]
    if not left:
        return touched
    spans = [_batches(run, started_ns), spans_of_clients(run)]
    began, ended = (np.concatenate(times) for times in zip(*spans, strict=True))
    for window in left:
        if ((began <= window.end_ns) & (ended >= window.start_ns)).any():
            touched.add(window.id)
    return touched | _ended_with_their_broker(run, left)


def acknowledged_before(run: Path, time_ns: int) -> bool:
    """Whether a batch of any client was acknowledged before a time."""
    for path in run_folder.tap_files(run / run_folder.CLUSTER):
        tap = read_tap(path)
        acked = (tap.rows["kind"] == PRODUCED) & (tap.rows["error"] == 0)
        acked &= tap.rows["completed_ns"] < time_ns
        if (acked & of_users(tap.rows["client"], tap.names)).any():
            return True
    return False


def _batches(run: Path, started_ns: int) -> tuple[Times, Times]:
    """Return when each batch of a client was made or asked for, and when its response left."""
    began, ended = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for path in run_folder.tap_files(run / run_folder.CLUSTER):
        tap = read_tap(path)
        rows = tap.rows[of_users(tap.rows["client"], tap.names)]
        made = (rows["kind"] == PRODUCED) & (rows["created_ns"] >= started_ns)
        began.append(np.where(made, np.minimum(rows["created_ns"], rows["invoked_ns"]), rows["invoked_ns"]))
        ended.append(rows["completed_ns"].astype(np.int64))
    return np.concatenate(began), np.concatenate(ended)


def _ended_with_their_broker(run: Path, windows: Iterable[FaultWindow]) -> set[str]:
    """Return the faults on whose brokers a client had a connection that has no recorded end: the broker was killed."""
    cut = [row for row in read_connections(run) if row.closed_ns is None]
    return {
        window.id
        for window in windows
        if recorded_kind(window.kind).ends_process
        and any(row.broker in window.nodes and row.opened_ns <= window.start_ns for row in cut)
    }
