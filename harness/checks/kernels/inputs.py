"""The input of the kernels: the job of one topic-partition, and its rows as polars frames.

`PartitionJob` is plain JSON, because it is sent to a Spark task; `load` reads its files. A frame is empty, never None,
when nothing was recorded. `final` is None when there was no final read, and `logs` is empty when the run folder has no
replica's log. Kernels read nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.format import OperationFunction, OperationType
from ...histories.layout import DRAINED, RowRange
from ..segments import SegmentError, last_segment, read_log
from .incarnations import since_creation

OPS_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8, "outcome": pl.UInt8, "error": pl.Int32, "offset": pl.Int64, "op": pl.Int64,
    "key_hash": pl.UInt64, "value_hash": pl.UInt64, "timestamp_ms": pl.Int64, "invoked_ns": pl.Int64,
    "time_ns": pl.Int64, "client": pl.UInt32, "source": pl.UInt8,
}  # fmt: skip
BATCH_SCHEMA: dict[str, type[pl.DataType]] = {
    "kind": pl.UInt8, "flags": pl.UInt8, "error": pl.Int16, "client": pl.UInt32, "base_offset": pl.Int64,
    "last_offset": pl.Int64, "crc": pl.UInt32, "count": pl.UInt32, "producer_id": pl.Int64,
    "producer_epoch": pl.Int16, "acks": pl.Int16, "base_sequence": pl.Int32, "invoked_ns": pl.Int64,
    "completed_ns": pl.Int64, "created_ns": pl.Int64, "base_timestamp_ms": pl.Int64,
    "max_timestamp_ms": pl.Int64, "node": pl.Int32,
}  # fmt: skip
PRODUCED, FETCHED, FLAG_LOST = 1, 2, 1
CONTROL, TRANSACTIONAL, LOG_APPEND_TIME = 0x20, 0x10, 0x08


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionJob:
    """A topic-partition to judge. Paths are absolute; `limit` bounds the anomalies that are shown of each name."""

    topic: str
    partition: int
    ops: list[RowRange] = field(default_factory=list[RowRange])
    pending: list[RowRange] = field(default_factory=list[RowRange])
    batches: list[RowRange] = field(default_factory=list[RowRange])
    logs: dict[str, str] = field(default_factory=dict[str, str])
    """The folder of each replica's log, by node id."""
    windows: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Fault windows by start: nanoseconds of the monotonic clock, from the injection to the healing."""
    started_ns: int = 0
    """The start of the run; 0 where it is not known."""
    created_ns: int = 0
    """When the topic was created again; 0: it was created once. This and the next two: `log_changes.LogChanges`."""
    cleaned_end: int = 0
    deleted_heads: dict[str, int] = field(default_factory=dict[str, int])
    own_clients: list[int] = field(default_factory=list[int])
    """The numbers of Harrow's own clients, such as that of the final read."""
    limit: int = 20
    size: int = 0
    """About how many bytes judging reads; `sources.pack` fills tasks by it."""

    def __post_init__(self) -> None:
        assert all(start <= end for start, end in self.windows), self.windows
        assert self.windows == sorted(self.windows), self.windows

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PartitionJob:
        """Return the job of a `to_dict` result, also after it was written and read as JSON."""
        fields: dict[str, Any] = dict(data)
        for name in ("ops", "pending", "batches"):
            fields[name] = [RowRange(*part) for part in data[name]]
        fields["windows"] = [(start, end) for start, end in data["windows"]]
        return cls(**fields)


@dataclass(slots=True, kw_only=True)
class PartitionInputs:
    """The rows of one topic-partition."""

    job: PartitionJob
    sends: pl.DataFrame
    """Recorded sends with the outcome ok or info; a fail certainly did not happen."""
    pending: pl.DataFrame
    """Sends with the outcome info and without a partition: any partition of the topic may have their records."""
    polls: pl.DataFrame
    """Recorded reads, and the BREAK rows between them."""
    commits: pl.DataFrame
    """Recorded commits of offsets."""
    final: pl.DataFrame | None
    """The final read, sorted by offset, with one row for each offset."""
    low: int
    high: int | None
    produced: pl.DataFrame
    fetched: pl.DataFrame
    logs: dict[int, pl.DataFrame]
    problems: list[str]
    log_ends: dict[int, int] = field(default_factory=dict[int, int])
    """By broker, the base offset of its last segment file: an empty log may begin and end there."""
    failed: int = 0
    agreed: bool | None = None
    """The stored result of `quick.agrees`, which two checks need."""

    @property
    def acked(self) -> pl.DataFrame:
        """The acknowledged sends."""
        return self.sends.filter(pl.col("outcome") == OperationType.OK)

    @property
    def acked_batches(self) -> pl.DataFrame:
        """Batches whose acknowledgement reached the producer; with acks=0 the client library creates it."""
        if not len(self.produced):
            return self.produced
        return self.produced.filter(
            (pl.col("error") == 0)
            & (pl.col("base_offset") >= 0)
            & ((pl.col("flags") & FLAG_LOST) == 0)
        )


class Files:
    """Reads the Parquet files for the jobs of one task; a file that several jobs need is read once."""

    def __init__(self) -> None:
        self._shared: dict[str, pl.DataFrame] = {}
        self._empty: dict[int, pl.DataFrame] = {}

    def read(
        self, parts: Sequence[RowRange], schema: Mapping[str, type[pl.DataType]]
    ) -> pl.DataFrame:
        """Return the rows of all parts in the parts' order."""
        if not parts:
            if id(schema) not in self._empty:  # the key is one of the two schemas above
                self._empty[id(schema)] = pl.DataFrame(schema=dict(schema))
            return self._empty[id(schema)]
        if len(parts) == 1:
            return self._part(parts[0], schema)
        return pl.concat([self._part(part, schema) for part in parts])

    def _part(self, part: RowRange, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
        shared = self._shared.get(part.path)
        if shared is None:
            shared = pl.read_parquet(part.path, columns=list(schema))
            if len(shared) == part.rows:
                return shared
            self._shared[part.path] = shared
        return shared.slice(part.start, part.rows)


def load(job: PartitionJob, files: Files) -> PartitionInputs:
    """Read the files of `job`. A log that cannot be read becomes a problem of the result."""
    ops = files.read(job.ops, OPS_SCHEMA)
    batches = files.read(job.batches, BATCH_SCHEMA)
    for frame, parts in ((ops, job.ops), (batches, job.batches)):
        assert len(frame) == sum(part.rows for part in parts), (job.topic, job.partition, parts)
    logs: dict[int, pl.DataFrame] = {}
    ends: dict[int, int] = {}
    problems: list[str] = []
    for node, folder in job.logs.items():
        try:
            logs[int(node)] = read_log(folder)
            ends[int(node)] = last_segment(folder)
        except (SegmentError, OSError) as error:
            problems.append(
                f"the log of {job.topic}-{job.partition} on broker {node} could not be read: {error}"
            )
    inputs = arrange(job, ops, files.read(job.pending, OPS_SCHEMA), batches, logs, problems)
    inputs.log_ends = ends
    return inputs


def arrange(
    job: PartitionJob, ops: pl.DataFrame, pending: pl.DataFrame, batches: pl.DataFrame,
    logs: dict[int, pl.DataFrame], problems: list[str],
) -> PartitionInputs:  # fmt: skip
    """Divide the rows by what they are: sends, reads, the final read, batches of the tap."""
    ops, batches, doubts = since_creation(job, ops, batches)
    kind, outcome, source = (ops[name].to_numpy() for name in ("kind", "outcome", "source"))
    drained, sends = source == DRAINED, kind == OperationFunction.SEND
    happened = sends & ((outcome == OperationType.OK) | (outcome == OperationType.INFO))
    bounds = chosen(ops, (kind == OperationFunction.BOUNDS) & drained)
    starts = [int(log["base_offset"][0]) for log in logs.values() if len(log)]
    batch_kind = batches["kind"].to_numpy()
    return PartitionInputs(
        job=job,
        sends=chosen(ops, happened),
        pending=chosen(pending, (pending["outcome"] == OperationType.INFO).to_numpy()),
        polls=chosen(
            ops, ((kind == OperationFunction.POLL) | (kind == OperationFunction.BREAK)) & ~drained
        ),
        commits=chosen(ops, (kind == OperationFunction.COMMIT) & ~drained),
        final=_by_offset(chosen(ops, (kind == OperationFunction.POLL) & drained))
        if len(bounds)
        else None,
        low=int(bounds["op"][-1]) if len(bounds) else max(starts, default=0),
        high=int(bounds["offset"][-1]) if len(bounds) else None,
        produced=chosen(batches, batch_kind == PRODUCED),
        fetched=chosen(batches, batch_kind == FETCHED),
        logs=logs,
        problems=[*problems, *doubts],
        failed=int((sends & (outcome == OperationType.FAIL)).sum()),
    )


def chosen(frame: pl.DataFrame, mask: npt.NDArray[np.bool_]) -> pl.DataFrame:
    """Return the rows that the mask selects."""
    count = int(np.count_nonzero(mask))
    if count == len(mask):
        return frame
    if not count:
        return frame.clear()
    first = int(mask.argmax())
    if mask[
        first : first + count
    ].all():  # consecutive rows, as those of a process often are: no copy and no query
        return frame.slice(first, count)
    return frame.filter(pl.Series(mask))


def _by_offset(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each offset, by offset; the rows of a final read usually have this order already."""
    if (np.diff(frame["offset"].to_numpy()) > 0).all():
        return frame
    return frame.unique("offset", keep="first", maintain_order=True).sort("offset")
