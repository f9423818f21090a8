"""The input of the kernels: the job of one topic-partition, and its rows as polars frames.

`PartitionJob` is plain JSON, because it is sent to a Spark task; `loading.py` reads its files, and `arrange` divides
the rows. A frame is empty, never None, when nothing was recorded. `final` is None when there was no final read, and
`logs` is empty when the run folder has no replica's log. Kernels read nothing else.

A task has many partitions, and a polars query takes some tenths of a millisecond however few rows it has. So nothing
here queries a frame without rows, and rows that are together already are sliced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import BREAKS, OperationFunction, OperationType
from ...histories.layout import DRAINED
from ...histories.segments import ABORT_MARKER, transaction_ranges
from ..plans import PartitionJob
from .early_removals import EarlyRemovals, legal_heads, removed_too_early
from .incarnations import since_creation
from .resent_batches import as_stored

OPS_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "outcome": pl.UInt8,
    "error": pl.Int32,
    "offset": pl.Int64,
    "op": pl.Int64,
    "key_hash": pl.UInt64,
    "value_hash": pl.UInt64,
    "timestamp_ms": pl.Int64,
    "invoked_ns": pl.Int64,
    "time_ns": pl.Int64,
    "client": pl.UInt32,
    "source": pl.UInt8,
}
BATCH_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "flags": pl.UInt8,
    "error": pl.Int16,
    "client": pl.UInt32,
    "base_offset": pl.Int64,
    "last_offset": pl.Int64,
    "crc": pl.UInt32,
    "count": pl.UInt32,
    "producer_id": pl.Int64,
    "producer_epoch": pl.Int16,
    "acks": pl.Int16,
    "base_sequence": pl.Int32,
    "invoked_ns": pl.Int64,
    "completed_ns": pl.Int64,
    "created_ns": pl.Int64,
    "base_timestamp_ms": pl.Int64,
    "max_timestamp_ms": pl.Int64,
    "node": pl.Int32,
}
TRANSACTION_SCHEMA: dict[str, type[pl.DataType]] = {
    "state": pl.UInt8,
    "transactional_id": pl.UInt32,
    "producer_id": pl.Int64,
    "producer_epoch": pl.Int16,
    "timeout_ms": pl.Int32,
    "time_ns": pl.Int64,
    "node": pl.Int32,
}
OFFSET_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "error": pl.Int16,
    "group": pl.UInt32,
    "client": pl.UInt32,
    "member": pl.UInt32,
    "generation": pl.Int32,
    "offset": pl.Int64,
    "producer_id": pl.Int64,
    "invoked_ns": pl.Int64,
    "completed_ns": pl.Int64,
    "node": pl.Int32,
}
MEMBER_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "group": pl.UInt32,
    "member": pl.UInt32,
    "client": pl.UInt32,
    "instance": pl.UInt32,
    "generation": pl.Int32,
    "leader_epoch": pl.Int32,
    "time_ns": pl.Int64,
    "node": pl.Int32,
}
WATERMARK_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "client": pl.UInt32,
    "leader_epoch": pl.Int32,
    "topic_id": pl.UInt32,
    "high_watermark": pl.Int64,
    "last_stable_offset": pl.Int64,
    "log_start_offset": pl.Int64,
    "invoked_ns": pl.Int64,
    "completed_ns": pl.Int64,
    "node": pl.Int32,
}
SHARE_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8,
    "flags": pl.UInt8,
    "error": pl.Int16,
    "group": pl.UInt32,
    "member": pl.UInt32,
    "client": pl.UInt32,
    "leader_epoch": pl.Int32,
    "delivery_count": pl.Int32,
    "first_offset": pl.Int64,
    "last_offset": pl.Int64,
    "invoked_ns": pl.Int64,
    "completed_ns": pl.Int64,
    "lock_until_ns": pl.Int64,
    "node": pl.Int32,
}
NUMPY_TYPES: dict[type[pl.DataType], type[np.generic]] = {
    pl.UInt8: np.uint8,
    pl.Int16: np.int16,
    pl.Int32: np.int32,
    pl.UInt32: np.uint32,
    pl.Int64: np.int64,
    pl.UInt64: np.uint64,
}
PRODUCED, FETCHED, FLAG_LOST = 1, 2, 1
SEQUENCE = ["producer_id", "producer_epoch", "base_sequence"]
"""The columns by which a broker recognises a batch that an idempotent producer sends again."""
SEQUENCES = 2**31
"""After sequence 2^31 - 1 follows 0, so that a larger step than half of them is a step back."""
LOG_APPEND_TIME = 0x08


NO_OPS = pl.DataFrame(schema=OPS_SCHEMA)
"""A frame without rows; making one takes longer than most checks of a small partition."""
NO_TRANSACTIONS = pl.DataFrame(schema=TRANSACTION_SCHEMA)
NO_OFFSETS = pl.DataFrame(schema=OFFSET_SCHEMA)
NO_MEMBERS = pl.DataFrame(schema=MEMBER_SCHEMA)
NO_WATERMARKS = pl.DataFrame(schema=WATERMARK_SCHEMA)
NO_SHARES = pl.DataFrame(schema=SHARE_SCHEMA)


class Role(IntEnum):
    """What a row of an operation is for the checks."""

    SENT = 0
    """A send with the outcome ok or info."""
    FAILED = 1
    """A send with the outcome fail."""
    READ = 2
    """A read, or a row of `BREAKS`."""
    COMMIT = 3
    FINAL = 4
    """A record of the final read; the next one is its bounds."""
    BOUNDS = 5
    OTHER = 6


@dataclass(slots=True, kw_only=True)
class CoordinatorRows:
    """What the coordinators recorded of one topic-partition, each by time."""

    transactions: pl.DataFrame = field(default_factory=NO_TRANSACTIONS.clone)
    offsets: pl.DataFrame = field(default_factory=NO_OFFSETS.clone)
    members: pl.DataFrame = field(default_factory=NO_MEMBERS.clone)

    def since(self, created_ns: int) -> CoordinatorRows:
        """Return the rows since the topic was created, by time."""
        return CoordinatorRows(
            transactions=_since(self.transactions, "time_ns", created_ns),
            offsets=_since(self.offsets, "completed_ns", created_ns),
            members=_since(self.members, "time_ns", created_ns),
        )


def _since(frame: pl.DataFrame, time: str, created_ns: int) -> pl.DataFrame:
    if not len(frame):
        return frame
    times = frame[time].to_numpy()
    if times.min() < created_ns:
        frame = frame.filter(pl.col(time) >= created_ns)
        times = frame[time].to_numpy()
    return frame if (np.diff(times) >= 0).all() else frame.sort(time, maintain_order=True)


class Placed(NamedTuple):
    """The acknowledged sends with an offset, by offset; of equal offsets in the order of the rows."""

    offset: npt.NDArray[np.int64]
    invoked_ns: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    distinct: bool
    """Whether no two have the same offset."""


@dataclass(slots=True, kw_only=True)
class PartitionInputs:
    """The rows of one topic-partition."""

    job: PartitionJob
    sends: pl.DataFrame
    """Recorded sends with the outcome ok or info."""
    pending: pl.DataFrame
    """Sends with the outcome info and without a partition: any partition of the topic may have their records."""
    polls: pl.DataFrame
    """Recorded reads, and the rows of `BREAKS` between them."""
    commits: pl.DataFrame
    """Recorded commits of offsets."""
    final: pl.DataFrame | None
    """The final read, sorted by offset, with one row for each offset."""
    low: int
    """What is below was removed legally, or is not known."""
    high: int | None
    produced: pl.DataFrame
    fetched: pl.DataFrame
    logs: dict[int, pl.DataFrame]
    problems: list[str]
    log_ends: dict[int, int] = field(default_factory=dict[int, int])
    """By broker, the base offset of its last segment file: an empty log may begin and end there."""
    epochs: dict[int, list[tuple[int, int]]] = field(default_factory=dict[int, list[tuple[int, int]]])
    """By broker, the leader epoch cache of its log, where it is known: epochs and their start offsets."""
    coordinators: CoordinatorRows = field(default_factory=CoordinatorRows)
    watermarks: pl.DataFrame = field(default_factory=NO_WATERMARKS.clone)
    """What leaders said in responses of high watermarks and last stable offsets, since the topic was created."""
    shares: pl.DataFrame = field(default_factory=NO_SHARES.clone)
    """What share groups did with the records, since the topic was created."""
    early: EarlyRemovals | None = None
    """Removals that were too early."""
    end_ns: int = 0
    """When the final read of the partition was complete; 0 without one."""
    to_the_end: bool = True
    """Whether the final read went to the end; else what is at `high` and above was not looked for (`info` bounds)."""
    failed_sends: pl.DataFrame = field(default_factory=NO_OPS.clone)
    """Recorded sends with the outcome fail: no log may have their records."""
    failed_anywhere: pl.DataFrame = field(default_factory=NO_OPS.clone)
    """The same without a partition, as of a send that the client library refused: no partition may have them."""
    placed: Placed | None = None
    """The stored result of `acknowledged_by_offset`."""
    agreed: bool | None = None
    """The stored result of `quick.agrees`, which two checks need."""
    strays: tuple[pl.DataFrame, pl.DataFrame] | None = None
    """The stored result of `quick.strays`."""
    committed: pl.DataFrame | None = None
    """The stored result of `visible`, which two checks need."""
    acknowledged_batches: pl.DataFrame | None = None
    """The stored result of `acked_batches`, which many checks need; the next one is that of `log_batches`."""
    batches_of_logs: pl.DataFrame | None = None
    confirmed_kept: bool | None = None
    """The stored result of `quick_batches.confirmed_are_kept`; the next one is that of `sequences_rise`."""
    rising: bool | None = None
    in_transactions: pl.DataFrame | None = None
    """The stored result of `log_transactions.transactional_batches`; the next one is that of `log_transactions`."""
    transactions: pl.DataFrame | None = None

    def failed(self) -> pl.DataFrame:
        """Return the sends that certainly failed, also those without a partition."""
        if not len(self.failed_anywhere):
            return self.failed_sends
        columns = list(OPS_SCHEMA)
        return pl.concat([self.failed_sends.select(columns), self.failed_anywhere.select(columns)])

    def visible(self) -> pl.DataFrame:
        """Return the final read, which exists, without the records of aborted transactions."""
        if self.committed is None:
            assert self.final is not None, "there was no final read"
            self.committed = rows_outside(_aborted(self.logs.values()), self.final)
        return self.committed

    def acknowledged_by_offset(self) -> Placed:
        """Return the acknowledged sends with an offset, sorted; computed once."""
        if self.placed is None:
            self.placed = _placed(self.sends)
        return self.placed

    @property
    def acked(self) -> pl.DataFrame:
        """The acknowledged sends."""
        return chosen(self.sends, self.sends["outcome"].to_numpy() == OperationType.OK)

    @property
    def acked_batches(self) -> pl.DataFrame:
        """Batches whose acknowledgement reached the producer; with acks=0 the client library creates it."""
        if self.acknowledged_batches is None:
            error, base, flags = (self.produced[name].to_numpy() for name in ("error", "base_offset", "flags"))
            known = (error == 0) & (base >= 0) & ((flags & FLAG_LOST) == 0)
            self.acknowledged_batches = chosen(self.produced, known)
        return self.acknowledged_batches

    @property
    def log_batches(self) -> pl.DataFrame:
        """The batches of all replicas' logs, of which there is one, with the broker in `node`."""
        if self.batches_of_logs is None:
            each = [log.with_columns(pl.lit(node, pl.Int32).alias("node")) for node, log in self.logs.items()]
            self.batches_of_logs = pl.concat(each)
        return self.batches_of_logs


def _placed(sends: pl.DataFrame) -> Placed:
    outcome, offset = sends["outcome"].to_numpy(), sends["offset"].to_numpy()
    known = (outcome == OperationType.OK) & (offset >= 0)
    rows = None if known.all() else np.flatnonzero(known)
    order, distinct = order_of(offset if rows is None else offset[rows])
    if order is not None:
        rows = order if rows is None else rows[order]
    invoked, time = sends["invoked_ns"].to_numpy(), sends["time_ns"].to_numpy()
    if rows is None:  # in order and complete, as the sends of one producer often are: no copy
        return Placed(offset, invoked, time, distinct)
    return Placed(offset[rows], invoked[rows], time[rows], distinct)


def order_of(offsets: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64] | None, bool]:
    """Return the stable order of the offsets (None: they are in order), and whether no two are equal.

    Offsets have few gaps, so that a place for each is made, which takes a fifth of the time of a sort.
    """
    if (np.diff(offsets) > 0).all():
        return None, True
    first, last = int(offsets.min()), int(offsets.max())
    if last - first < 4 * len(offsets):
        places = np.full(last - first + 1, -1, np.int64)
        places[offsets - first] = np.arange(len(offsets))
        order = places[places >= 0]
        if len(order) == len(offsets):
            return order, True
    order = np.argsort(offsets, kind="stable")
    return order, bool((np.diff(offsets[order]) > 0).all())


def _aborted(logs: Iterable[pl.DataFrame]) -> list[tuple[int, int]]:
    """Return the first and last offset of each batch of an aborted transaction, of all replicas, sorted."""
    columns = ("base_offset", "last_offset", "attributes", "producer_id")
    found: set[tuple[int, int]] = set()
    for log in logs:
        if (log["attributes"].to_numpy() & ABORT_MARKER).any():
            found.update(transaction_ranges(log.select(columns).iter_rows()).aborted)
    return sorted(found)


def rows_outside(ranges: Sequence[tuple[int, int]], frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose offset is in none of `ranges`, which are sorted and may overlap."""
    if not ranges:
        return frame
    first, last = np.array(ranges, np.int64).T
    assert (np.diff(first) >= 0).all(), f"{len(first)} ranges of offsets are searched and not sorted"
    offsets = frame["offset"].to_numpy()
    at = np.searchsorted(first, offsets, side="right") - 1
    within = (at >= 0) & (np.maximum.accumulate(last)[at] >= offsets)
    return frame.filter(pl.Series(~within))


def arrange(
    job: PartitionJob,
    ops: pl.DataFrame,
    pending: pl.DataFrame,
    batches: pl.DataFrame,
    logs: dict[int, pl.DataFrame],
    problems: list[str],
) -> PartitionInputs:
    """Divide the rows by what they are: sends, reads, the final read, batches of the tap."""
    ops, batches, doubts = since_creation(job, ops, batches)
    produced = as_stored(chosen(batches, batches["kind"].to_numpy() == PRODUCED), logs)
    low, early = sys.maxsize, removed_too_early(job, produced)
    if early is not None:
        low = early.start
        job = replace(job, deleted_heads=legal_heads(job, low))
    roles = roles_of(*(ops[name].to_numpy() for name in ("kind", "outcome", "source")))
    bounds = chosen(ops, roles == Role.BOUNDS)
    starts = [int(log["base_offset"][0]) for log in logs.values() if len(log)]
    batch_kind = batches["kind"].to_numpy()
    return PartitionInputs(
        job=job,
        sends=chosen(ops, roles == Role.SENT),
        pending=chosen(pending, pending["outcome"].to_numpy() == OperationType.INFO),
        polls=chosen(ops, roles == Role.READ),
        commits=chosen(ops, roles == Role.COMMIT),
        final=_by_offset(chosen(ops, roles == Role.FINAL)) if len(bounds) else None,
        low=min(low, int(bounds["op"][-1]) if len(bounds) else max(starts, default=0)),
        high=int(bounds["offset"][-1]) if len(bounds) else None,
        produced=produced,
        fetched=chosen(batches, batch_kind == FETCHED),
        logs=logs,
        early=early,
        problems=[*problems, *doubts],
        end_ns=int(bounds["time_ns"][-1]) if len(bounds) else 0,
        to_the_end=not len(bounds) or bounds["outcome"][-1] == OperationType.OK,
        failed_sends=chosen(ops, roles == Role.FAILED),
        failed_anywhere=chosen(pending, pending["outcome"].to_numpy() == OperationType.FAIL),
    )


def roles_of(
    kind: npt.NDArray[np.uint8], outcome: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """Return the `Role` of each operation, from its columns."""
    place = (np.minimum(kind, KIND_MOST) << 3) | np.minimum(outcome, OUTCOME_MOST)
    roles: npt.NDArray[np.uint8] = ROLES[place | ((source == DRAINED).view(np.uint8) << 7)]
    return roles


def _roles() -> npt.NDArray[np.uint8]:
    """Return the role by source, kind and outcome, as `roles_of` combines them."""
    roles = np.full((2, KIND_MOST + 1, OUTCOME_MOST + 1), Role.OTHER, np.uint8)
    roles[:, OperationFunction.SEND, [OperationType.OK, OperationType.INFO]] = Role.SENT
    roles[:, OperationFunction.SEND, OperationType.FAIL] = Role.FAILED
    roles[0, [OperationFunction.POLL, *BREAKS]] = Role.READ
    roles[0, OperationFunction.COMMIT] = Role.COMMIT
    roles[1, OperationFunction.POLL] = Role.FINAL
    roles[1, OperationFunction.BOUNDS] = Role.BOUNDS
    return roles.reshape(-1)


KIND_MOST, OUTCOME_MOST = 15, 7
"""Kinds and outcomes have 4 and 3 bits in the place of a role."""
ROLES = _roles()


def chosen(frame: pl.DataFrame, mask: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return the rows that the mask selects."""
    count = int(np.count_nonzero(mask))
    if count == len(mask):
        return frame
    if not count:
        return frame.clear()
    first = int(mask.argmax())
    if mask[first : first + count].all():  # consecutive rows, as those of a process often are: no copy and no query
        return frame.slice(first, count)
    return frame.filter(pl.Series(mask))


def _by_offset(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each offset, by offset; the rows of a final read usually have this order already."""
    if (np.diff(frame["offset"].to_numpy()) > 0).all():
        return frame
    return frame.unique("offset", keep="first", maintain_order=True).sort("offset")
