"""Reads the rows of the jobs of a task: each large partition alone, and many small ones at once.

A partition with few rows costs what its calls cost: to read its ranges, to make frames, to select rows. So `Files.hold`
reads the rows of up to `GROUP_ROWS` rows of neighbouring jobs together, sorts them by job and by what they are
(`inputs.Role`), and makes one frame; the rows of a partition, and each role of them, are slices of it. The order of the
rows of a role is that of the job's ranges, as when a job is read alone. Memory: one group of rows, or one partition.

When a group cannot be read, its jobs are read one by one, so that the verdict names the partition.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from ...histories.row_index import RowRange
from ...histories.row_ranges import RangeReader
from ...histories.segments import SegmentError, last_segment, read_epochs, read_log
from ..plans import ROW_RANGES, PartitionJob
from .inputs import (
    BATCH_SCHEMA,
    MEMBER_SCHEMA,
    NUMPY_TYPES,
    OFFSET_SCHEMA,
    OPS_SCHEMA,
    SHARE_SCHEMA,
    TRANSACTION_SCHEMA,
    WATERMARK_SCHEMA,
    CoordinatorRows,
    PartitionInputs,
    arrange,
    roles_of,
)

Schema = Mapping[str, type[pl.DataType]]
Columns = dict[str, npt.NDArray[Any]]
SCHEMAS: Mapping[str, Schema] = {
    "ops": OPS_SCHEMA,
    "pending": OPS_SCHEMA,
    "batches": BATCH_SCHEMA,
    "transactions": TRANSACTION_SCHEMA,
    "offsets": OFFSET_SCHEMA,
    "members": MEMBER_SCHEMA,
    "watermarks": WATERMARK_SCHEMA,
    "shares": SHARE_SCHEMA,
}
"""By the field of a job (`ROW_RANGES`)."""
EMPTY = {name: pl.DataFrame(schema=dict(schema)) for name, schema in SCHEMAS.items()}
SHARED = "pending"
"""The field that has the same ranges in each job of a topic."""
GROUP_ROWS = 1 << 17
ROLES_MOST = 256
assert set(SCHEMAS) == set(ROW_RANGES)


class _Part(NamedTuple):
    """A range of rows with the number of its job in the group, and its own number in the job."""

    range: RowRange
    job: int
    number: int


def in_groups(jobs: Sequence[PartitionJob]) -> Generator[list[PartitionJob]]:
    """Divide the jobs, in their order, into groups of at most `GROUP_ROWS` rows; larger jobs are alone."""
    group: list[PartitionJob] = []
    rows = 0
    for job in jobs:
        own = sum(part.rows for name in ROW_RANGES if name != SHARED for part in getattr(job, name))
        if group and rows + own > GROUP_ROWS:
            yield group
            group, rows = [], 0
        group.append(job)
        rows += own
    if group:
        yield group


class Files:
    """Reads rows for the jobs of one task as frames; a file that several jobs need is mapped once."""

    def __init__(self) -> None:
        self._ranges = RangeReader()
        self._held: dict[tuple[str, int, str], pl.DataFrame] = {}
        """The rows of the jobs of a group, by topic, partition and field."""
        self._shared: tuple[list[RowRange], pl.DataFrame] = ([], EMPTY[SHARED])

    def hold(self, jobs: Sequence[PartitionJob]) -> None:
        """Read the rows of all `jobs` at once, for `rows`; forget those of the group before."""
        self._held.clear()
        if len(jobs) < 2:
            return
        try:
            for name, schema in SCHEMAS.items():
                if name != SHARED:
                    self._hold(jobs, name, schema)
        except Exception:  # `rows` reads them again, job by job, and raises where it cannot
            self._held.clear()

    def rows(self, job: PartitionJob, name: str) -> pl.DataFrame:
        """Return the rows of a field of `job` (of `ROW_RANGES`), in the order of its ranges at least for each role."""
        parts: list[RowRange] = getattr(job, name)
        if not parts:
            return EMPTY[name]
        if name == SHARED:
            if self._shared[0] != parts:
                self._shared = parts, self.read(parts, SCHEMAS[name])
            return self._shared[1]
        held = self._held.get((job.topic, job.partition, name))
        return self.read(parts, SCHEMAS[name]) if held is None else held

    def read(self, parts: Sequence[RowRange], schema: Schema) -> pl.DataFrame:
        """Return the rows of all parts in the parts' order."""
        columns = self._columns(parts, schema)
        # polars copies columns: each is freed when its copy is made, so that they are not in memory twice
        return pl.DataFrame([pl.Series(name, columns.pop(name)) for name in schema])

    def _columns(self, parts: Sequence[RowRange], schema: Schema) -> Columns:
        return self._ranges.read(parts, {name: NUMPY_TYPES[dtype] for name, dtype in schema.items()})

    def _hold(self, jobs: Sequence[PartitionJob], name: str, schema: Schema) -> None:
        found: list[RowRange]
        parts: list[_Part] = []
        for at, job in enumerate(jobs):
            found = getattr(job, name)
            parts += [_Part(part, at, number) for number, part in enumerate(found)]
        if not parts:
            return
        parts.sort()
        columns = self._columns(_joined(parts), schema)
        order, counts = _by_job(parts, _roles(name, columns), len(jobs))
        frame = pl.DataFrame([pl.Series(column, columns.pop(column)[order]) for column in schema])
        start = 0
        for job, rows in zip(jobs, counts, strict=True):
            self._held[job.topic, job.partition, name] = frame.slice(start, rows)
            start += rows
        assert start == len(frame), f"{start} of {len(frame)} rows of {name} belong to a job of the group"


def _joined(parts: Sequence[_Part]) -> list[RowRange]:
    """Return the ranges, where those that follow each other in a file are one: each range costs some calls."""
    joined: list[RowRange] = []
    for path, start, rows in (part.range for part in parts):
        last = joined[-1] if joined else None
        if last is not None and last.path == path and last.start + last.rows == start:
            joined[-1] = RowRange(path, last.start, last.rows + rows)
        else:
            joined.append(RowRange(path, start, rows))
    assert sum(part.rows for part in joined) == sum(part.range.rows for part in parts), joined
    return joined


def _roles(name: str, columns: Columns) -> npt.NDArray[np.int64]:
    """Return what each row is for the checks; the rows of coordinators are never divided, and keep their order."""
    if name == "ops":
        roles = roles_of(columns["kind"], columns["outcome"], columns["source"])
    else:
        roles = columns["kind"] if name == "batches" else np.zeros(len(columns["node"]), np.uint8)
    return roles.astype(np.int64)


def _by_job(parts: Sequence[_Part], roles: npt.NDArray[np.int64], jobs: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the order of the rows by job, role and range, and how many rows each job has."""
    ranges = np.array([(part.range.rows, part.job, part.number) for part in parts], np.int64)
    rows, job, number = ranges.T
    numbers = int(number.max()) + 1
    place = np.repeat(job * ROLES_MOST * numbers + number, rows) + roles * numbers
    counts = np.bincount(job, rows, minlength=jobs).astype(np.int64)
    return np.argsort(place, kind="stable"), counts.tolist()


def load(job: PartitionJob, files: Files) -> PartitionInputs:
    """Read the files of `job`. A log that cannot be read becomes a problem of the result."""
    ops, batches = files.rows(job, "ops"), files.rows(job, "batches")
    for frame, parts in ((ops, job.ops), (batches, job.batches)):
        assert len(frame) == sum(part.rows for part in parts), (job.topic, job.partition, parts)
    logs: dict[int, pl.DataFrame] = {}
    ends: dict[int, int] = {}
    epochs: dict[int, list[tuple[int, int]]] = {}
    problems: list[str] = []
    for node, folder in job.logs.items():
        try:
            logs[int(node)] = read_log(folder)
            ends[int(node)] = last_segment(folder)
            cache = read_epochs(folder)
            if cache is not None:
                epochs[int(node)] = cache
        except (SegmentError, OSError) as error:
            problems.append(f"the log of {job.topic}-{job.partition} on broker {node} could not be read: {error}")
    assert len(logs) + len(problems) >= len(job.logs), f"a log was not read: {job.logs}, {sorted(logs)}, {problems}"
    inputs = arrange(job, ops, files.rows(job, "pending"), batches, logs, problems)
    inputs.log_ends, inputs.epochs = ends, epochs
    inputs.coordinators = CoordinatorRows(
        transactions=files.rows(job, "transactions"),
        offsets=files.rows(job, "offsets"),
        members=files.rows(job, "members"),
    ).since(job.created_ns)
    watermarks = files.rows(job, "watermarks")
    if job.created_ns and len(watermarks):
        watermarks = watermarks.filter(pl.col("invoked_ns") >= job.created_ns)
    inputs.watermarks = watermarks
    shares = files.rows(job, "shares")
    if job.created_ns and len(shares):
        shares = shares.filter(pl.col("invoked_ns") >= job.created_ns)
    inputs.shares = shares
    return inputs
