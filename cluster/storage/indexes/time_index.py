"""`.timeindex`: the offset from which to look for a timestamp (B4).

12 bytes an entry, big-endian: timestamp i8, relative offset i4. An entry (t, o) says that no record up to o
is later than t; timestamps strictly increase. The last entry of a sealed segment names its largest
timestamp: it is written at roll and at close, as Kafka's `onBecomeInactiveSegment` does.

Source: Kafka's `TimeIndex`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from ...errors import CorruptLogError
from .sparse_index import SparseIndex

_ENTRY = struct.Struct(">qi")
_TIME = struct.Struct(">q")
_unpack = _ENTRY.unpack_from
_time = _TIME.unpack_from


class TimeIndex(SparseIndex):
    """Timestamp → offset."""

    __slots__ = ()
    ENTRY = _ENTRY

    @property
    def is_full(self) -> bool:
        """True when only the entry that sealing the segment adds still fits."""
        return self._entries >= self._entries_max - 1

    def maybe_append(self, timestamp: int, offset: int, *, sealing: bool = False) -> None:
        """Add an entry: no record up to `offset` is later than `timestamp`.

        Ignored unless `timestamp` is a new maximum. Also ignored when the index is full; the last place is for the
        entry of `sealing`.
        """
        if timestamp > self.last()[0] and (sealing or not self.is_full):
            room = self._room or self.begin()
            last = self.last()[1]
            assert offset > last or not self._entries, f"{self.path}: {offset} is not after {last}"
            _ENTRY.pack_into(room, self._entries * 12, timestamp, offset - self.base_offset)
            self._entries += 1

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (-1, base offset) when there is none."""
        return self.entry(self._entries - 1)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below `timestamp`; (-1, base offset) when there is none."""

        def floor(view: memoryview, count: int) -> tuple[int, int]:
            found = bisect_right(range(count), timestamp, key=lambda i: int(_time(view, i * 12)[0]))
            if found == 0:
                return -1, self.base_offset
            time, relative = _unpack(view, (found - 1) * 12)
            return time, self.base_offset + relative

        return self._search(floor)

    def entry(self, index: int) -> tuple[int, int]:
        """Timestamp and offset; (-1, base offset) for index -1."""
        if index < 0:
            return -1, self.base_offset
        timestamp, relative = _unpack(self._view(), index * 12)
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Remove entries at or above `offset`."""
        below = offset - 1 - self.base_offset

        def keep(view: memoryview, count: int) -> int:
            return bisect_right(range(count), below, key=lambda i: int(_unpack(view, i * 12)[1]))

        self.keep_entries(self._search(keep))

    def check_entries(self) -> None:
        """CorruptLogError when the last entry lies before the first."""
        first, last = self.entry(0), self.entry(self._entries - 1)
        if last[1] < self.base_offset or last[0] < first[0] or (self._entries > 1 and last <= first):
            raise CorruptLogError(f"{self.path}: last entry {last} lies before the first, {first}")
