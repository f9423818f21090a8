"""What one share group did with the records of a partition, in segments: offsets that no row divides (KIP-932).

A row of `tap.shares` is about a range of offsets. `SharedOffsets.of` cuts the ranges at each other's ends, so that
every row is about whole segments, and lists the events of each segment in the order in which they were recorded. A
checker then works on events of segments, as if each segment were one record. A topic whose ranges are batches has few
segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import polars as pl

ACQUIRED, ACCEPTED, RELEASED, REJECTED, RENEWED, EXPIRED, ARCHIVED, LOADED, COPIED = range(1, 10)
"""Kinds of rows: the seam's."""
ENDS = (ACCEPTED, RELEASED, REJECTED, EXPIRED, ARCHIVED)
"""Kinds of rows after which a member may no longer hold the records."""
OF_NO_MEMBER = (EXPIRED, ARCHIVED)
SURELY_REFUSED = (100, 121, 122, 123)
"""Errors with which a leader refuses an acknowledgement before it stores anything: unknown topic id, invalid record
state, no such share session, its epoch. After another error it may be stored: a leader that was deposed answers
NOT_LEADER_OR_FOLLOWER also where the response to its first write was lost, and a retry was fenced."""
Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SharedOffsets:
    """The events of one group, by segment and in each by time; the arrays of events have one length."""

    first: Longs
    """The first offset of each segment; the next one is its end, exclusive."""
    end: Longs
    segment: Longs
    """The number of an event's segment."""
    row: Longs
    """The number of its row in `rows`."""
    rows: pl.DataFrame
    """The rows of the group by time."""

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Self:
        """Divide rows of one group, which are sorted by time; `LOADED` is about no record."""
        first, last = rows["first_offset"].to_numpy(), rows["last_offset"].to_numpy()
        number = np.flatnonzero((rows["kind"].to_numpy() != LOADED) & (last >= first))
        first, end = first[number], last[number] + 1
        bounds = np.unique(np.concatenate([first, end]))
        low, high = np.searchsorted(bounds, first), np.searchsorted(bounds, end)
        counts = high - low
        row = np.repeat(number, counts)
        segment = np.repeat(low, counts) + _within(counts)
        order = np.argsort(segment, kind="stable")
        return cls(bounds[:-1], bounds[1:], segment[order], row[order], rows)

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """Return a column of the rows for each event."""
        values: Longs = self.rows[name].to_numpy().astype(np.int64)[self.row]
        return values

    def records(self, segments: Longs) -> Longs:
        """Return how many offsets each of the segments has."""
        return self.end[segments] - self.first[segments]


def _within(counts: Longs) -> Longs:
    """Return 0, 1, … for each of the counts: `[2, 3]` gives 0, 1, 0, 1, 2."""
    total = int(counts.sum())
    starts = np.cumsum(counts) - counts
    return np.arange(total) - np.repeat(starts, counts)


def is_kind(kinds: npt.NDArray[np.int64], *wanted: int) -> Mask:
    """Return which events are of one of the kinds."""
    return np.isin(kinds, wanted)


def may_be_done(kinds: npt.NDArray[np.int64], errors: npt.NDArray[np.int64]) -> Mask:
    """Return which events are a final acknowledgement that the leader has done, or may have done."""
    return np.isin(kinds, (ACCEPTED, REJECTED)) & ~np.isin(errors, SURELY_REFUSED)


def any_of(segments: Longs, wanted: Mask, count: int) -> Mask:
    """Return for each of `count` segments whether it has a wanted event."""
    found = np.zeros(count, np.bool_)
    found[segments[wanted]] = True
    return found


def last_of(segments: Longs, wanted: Mask, count: int) -> Longs:
    """Return for each segment the number of its last wanted event, -1 without one; events are sorted by segment."""
    found = np.full(count, -1, np.int64)
    at = np.flatnonzero(wanted)
    found[segments[at]] = at  # of equal places the last one stays
    return found


def first_of(segments: Longs, wanted: Mask, count: int) -> Longs:
    """Return for each segment the number of its first wanted event, -1 without one."""
    found = np.full(count, -1, np.int64)
    at = np.flatnonzero(wanted)[::-1]
    found[segments[at]] = at
    return found
