"""The segments of one log, by offset and by time (Kafka's `LogSegments`).

Owns: their order. Invariants: base offsets strictly increase; never empty; the last one is active.
A look-up by offset is one bisection. A look-up by time is one bisection over the largest timestamps up to each closed
segment; that list stays valid while segments are only added.

Only the loop changes it; a thread takes a copy (`list(segments.all)`) first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from .segment import LogSegment


class LogSegments:
    """The segments of one log in order of base offset."""

    __slots__ = ("_bases", "_latest", "active", "all")

    def __init__(self, segments: Iterable[LogSegment]) -> None:
        self.all: list[LogSegment] = []
        self._bases: list[int] = []
        self._latest: list[int] | None = None
        """Largest timestamp up to each closed segment; None: not computed."""
        self._set(sorted(segments, key=lambda segment: segment.base_offset))

    def _set(self, segments: list[LogSegment]) -> None:
        assert segments, "a log has at least one segment"
        self.all = segments  # a new list: an iteration over the old list is not disturbed
        self._bases = [segment.base_offset for segment in segments]
        assert all(base < after for base, after in pairwise(self._bases)), f"bases {self._bases}"
        self._latest = None
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.all)

    def floor(self, offset: int) -> int:
        """Index of the segment with `offset`; -1 below the first segment."""
        return bisect_right(self._bases, offset) - 1

    def add(self, segment: LogSegment) -> None:
        """Append a new active segment."""
        assert segment.base_offset > self._bases[-1], "segments are added at the end"
        latest = self._latest
        if latest is not None and len(latest) == len(self.all) - 1:
            latest.append(max(latest[-1] if latest else -1, self.active.max_timestamp))
        self.all.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove(self, gone: Sequence[LogSegment]) -> None:
        """Remove these segments; at least one segment stays."""
        self._set([segment for segment in self.all if segment not in gone])

    def replace(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Replace `old` by `new` (compaction); the active segment stays."""
        assert self.active not in old, f"{self.active.file.path}: the active segment is not compacted"
        kept = [segment for segment in self.all if segment not in old]
        self._set(sorted([*kept, new], key=lambda segment: segment.base_offset))

    def start_over(self, segment: LogSegment) -> None:
        """Replace all segments by `segment`."""
        self._set([segment])

    def from_time(self, timestamp: int) -> Iterator[LogSegment]:
        """The segments from the first that may have a record at or after `timestamp`.

        Safe on a thread: when a roll has made the list of timestamps incomplete, it is computed again.
        """
        segments = self.all
        sealed = len(segments) - 1
        latest = self._latest
        if latest is None or len(latest) < sealed:
            times = (segment.max_timestamp for segment in segments[:sealed])
            latest = self._latest = list(accumulate(times, max))
        for index in range(bisect_left(latest, timestamp, 0, sealed), len(segments)):
            yield segments[index]
