"""Removals that were too early: segments that retention removed although the topic's settings keep them (B7, L2).

Judged for each removed segment by what the tap knows, because a broker that removes too early may be wrong about its
own records:

* by time (`retention.ms`): too early when a batch in the segment was younger, both by its own newest timestamp and by
  the time that passed since its request. So old or missing timestamps (CreateTime) and LogAppendTime are no anomaly;
* by size (`retention.bytes`): too early when the log had fewer bytes left than the setting keeps;
* with a limit of -1, which keeps everything, always.

Nothing is judged by time where a fault changed a broker's clock, and in what compaction has cleaned.

A removal that was too early explains nothing: the records from there on count as lost (`inputs.arrange`), up to where
another replica's removal was legal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ..log_changes import NOT_TRACED, Removal

if TYPE_CHECKING:
    from ..plans import PartitionJob

TOLERANCE_MS = 1_000
"""A machine's clock may be corrected while it runs."""
BY_TIME, BY_SIZE = "retention.ms", "retention.bytes"


@dataclass(frozen=True, slots=True)
class EarlyRemovals:
    """The removals of a partition that were too early, if any."""

    start: int
    """The records from this offset on should be there."""
    rows: tuple[Removal, ...]
    """Sorted by their first offset; the segments of one broker do not overlap, those of two do."""

    def of_offset(self, offset: int) -> Removal | None:
        """Return the first of them that removed this offset."""
        return next((row for row in self.rows if row.base <= offset < row.end), None)


def removed_too_early(job: PartitionJob, produced: pl.DataFrame) -> EarlyRemovals | None:
    """Return the removals that were too early, where no other replica's removal was legal; None without one."""
    judged = [row for row in job.removals if row.reason in (BY_TIME, BY_SIZE)]
    if not judged:
        return None
    early = [row for row in judged if _is_too_early(row, job, produced)]
    legal_end = max((row.end for row in judged if row not in early), default=0)
    found = tuple(sorted((row for row in early if row.end > legal_end), key=_base))
    return EarlyRemovals(max(found[0].base, legal_end), found) if found else None


def _base(row: Removal) -> int:
    return row.base


def _is_too_early(row: Removal, job: PartitionJob, produced: pl.DataFrame) -> bool:
    if row.reason == BY_SIZE:
        return row.keep_bytes == -1 or row.bytes_left < row.keep_bytes
    if row.keep_ms < 0:
        return row.keep_ms != NOT_TRACED
    if job.wrong_clocks or row.base < job.cleaned_end:
        return False
    inside = produced.filter(
        (pl.col("error") == 0)
        & (pl.col("base_offset") >= row.base)
        & (pl.col("last_offset") < row.end)
        & (pl.col("max_timestamp_ms") >= 0)
    )
    by_timestamp = row.wall_ms - pl.col("max_timestamp_ms")
    by_request = (row.t_ns - pl.col("invoked_ns")) // 1_000_000
    age_ms = pl.max_horizontal(by_timestamp, by_request)
    return len(inside.filter(age_ms < row.keep_ms - TOLERANCE_MS)) > 0


def legal_heads(job: PartitionJob, early: int) -> dict[str, int]:
    """Return `job.deleted_heads` as if nothing had been removed from offset `early` on."""
    heads = {node: base for node, base in job.deleted_heads.items() if base < early}
    for row in job.removals:
        if row.base < early:
            heads[str(row.node)] = max(heads.get(str(row.node), -1), row.base)
    return heads


def describe_early(early: EarlyRemovals | None, offset: int) -> str:
    """Return the end of a sentence about a lost record; empty unless a removal that was too early removed it."""
    row = None if early is None else early.of_offset(offset)
    if row is None:
        return ""
    if row.reason == BY_TIME:
        limit = f"{BY_TIME} is {row.keep_ms} and a record of the segment was younger"
    else:
        limit = f"{BY_SIZE} is {row.keep_bytes} and {row.bytes_left} bytes were left"
    return f"; broker {row.node} removed the segment of offsets {row.base} to {row.end - 1} too early: {limit}"
