"""When clients worked on a partition, and which faults their operations met (L6).

An operation lasts from the creation of its oldest record to its completion: a recorded send from its invocation, a
produced batch from its base timestamp (a paused or isolated leader does not read the request yet, and a fault that is
shorter than the client's timeouts ends before any request arrives), a fetch from when the broker read it, a commit of a
transaction from the last response to a produce of its producer to the decision of its coordinator (EndTxn waits at an
isolated coordinator, and the producer sends nothing until it is answered). A fault was met when an operation's time
overlaps the fault's time, from its injection to the proof of its healing.

Not counted, because they would hide a doubt: sends that never completed (when did they end?), the final read, a
base timestamp from before the run, which is the application's own (the time of an event), and the abort of a
transaction, which may be the coordinator's own when the transaction has timed out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from harrow.cluster.host.seam import PREPARE_COMMIT

from ...histories.format import OperationFunction, OperationType
from ..rows import PartitionTraffic, Unread
from .findings import PartitionFindings
from .inputs import PartitionInputs, chosen

Times = npt.NDArray[np.int64]
BLOCK = 1 << 18
"""Operations that are counted at a time."""
NO_COMMITS = pl.DataFrame(schema={"completed_ns": pl.Int64, "time_ns": pl.Int64})


def operation_times(inputs: PartitionInputs) -> Iterator[tuple[Times, Times]]:
    """Yield when operations of clients began and ended, in nanoseconds of the monotonic clock; `BLOCK` at a time."""
    reads = chosen(inputs.polls, inputs.polls["kind"].to_numpy() == OperationFunction.POLL)
    recorded = [inputs.sends, reads, inputs.commits]
    fetched = _fetched_by_users(inputs)
    commits = _commits(inputs)
    columns: list[tuple[Times, Times]] = [
        *(_columns(frame, "invoked_ns", "time_ns") for frame in recorded),
        (_produced_from(inputs), inputs.produced["completed_ns"].to_numpy()),
        _columns(fetched, "invoked_ns", "completed_ns"),
        _columns(commits, "completed_ns", "time_ns"),
    ]
    for began, ended in columns:
        for start in range(0, len(began), BLOCK):
            block = slice(start, start + BLOCK)
            yield began[block], ended[block]


def _columns(frame: pl.DataFrame, began: str, ended: str) -> tuple[Times, Times]:
    return frame[began].to_numpy(), frame[ended].to_numpy()


def _produced_from(inputs: PartitionInputs) -> Times:
    """Return when the oldest record of each produced batch was made, or, where this is not known, when it arrived."""
    created, invoked = (inputs.produced[name].to_numpy() for name in ("created_ns", "invoked_ns"))
    if not len(created):
        return created
    earliest = inputs.job.started_ns or int(invoked.min())
    return np.where(created >= earliest, np.minimum(created, invoked), invoked)


def _fetched_by_users(inputs: PartitionInputs) -> pl.DataFrame:
    """Return the batches that other clients than Harrow's own received."""
    if not len(inputs.fetched):
        return inputs.fetched
    client = inputs.fetched["client"].to_numpy()
    return chosen(inputs.fetched, ~np.isin(client, inputs.job.own_clients))


def _commits(inputs: PartitionInputs) -> pl.DataFrame:
    """Return `completed_ns`, the last response to a produce before each decision to commit, and `time_ns` of this."""
    if not len(inputs.coordinators.transactions):
        return NO_COMMITS
    produced = inputs.produced.select("producer_id", "completed_ns").sort("completed_ns")
    transactions = inputs.coordinators.transactions
    decided = transactions.filter(pl.col("state") == PREPARE_COMMIT).select("producer_id", "time_ns")
    return decided.join_asof(
        produced, left_on="time_ns", right_on="completed_ns", by="producer_id", coalesce=False, check_sortedness=False
    ).drop_nulls("completed_ns")


def traffic(inputs: PartitionInputs) -> PartitionTraffic | None:
    """Return when the traffic began and ended, and how many operations met each fault and any fault."""
    windows = np.array(inputs.job.windows, np.int64).reshape(-1, 2)
    met, met_any = np.zeros(len(windows), np.int64), 0
    bounds: list[int] = []
    for began, ended in operation_times(inputs):
        bounds += int(began.min()), int(ended.max())
        if len(windows):
            over_before = np.searchsorted(np.sort(ended, kind="stable"), windows[:, 0], "left")
            begun_by_end = np.searchsorted(np.sort(began, kind="stable"), windows[:, 1], "right")
            met += begun_by_end - over_before
            met_any += _met_any(began, ended, windows)
    if not bounds:
        return None
    return PartitionTraffic(began_ns=min(bounds[::2]), ended_ns=max(bounds[1::2]), met=met.tolist(), met_any=met_any)


def _met_any(began: Times, ended: Times, windows: npt.NDArray[np.int64]) -> int:
    """Return how many operations overlap at least one window."""
    # by their starts, an operation meets the last window that begins before its end, or an earlier one that ends later
    last = np.searchsorted(windows[:, 0], ended, "right") - 1
    latest_end = np.maximum.accumulate(windows[:, 1])
    return int(((last >= 0) & (latest_end[last] >= began)).sum())


def acknowledged_before_faults(inputs: PartitionInputs) -> int:
    """Count the sends and batches that were acknowledged before the first fault."""
    if not inputs.job.windows:
        return 0
    first = min(start for start, _ in inputs.job.windows)
    outcome, ended = inputs.sends["outcome"].to_numpy(), inputs.sends["time_ns"].to_numpy()
    records = int(((outcome == OperationType.OK) & (ended < first)).sum())
    return records + int((inputs.acked_batches["completed_ns"].to_numpy() < first).sum())


def unread_records(inputs: PartitionInputs, findings: PartitionFindings) -> None:
    """Note the records after the last one that a client received, where clients read the partition at all."""
    fetched = _fetched_by_users(inputs)
    if not len(fetched) or inputs.final is None:
        return
    last = int(fetched["last_offset"].to_numpy().max())
    unread = int((inputs.final["offset"].to_numpy() > last).sum())
    if unread:
        findings.unread = Unread(unread, int(fetched["completed_ns"].to_numpy().max()))
