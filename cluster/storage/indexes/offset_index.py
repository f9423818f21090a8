"""`.index`: the position in a segment's file from which to look for an offset (B3).

8 bytes an entry, big-endian: relative offset i4, position i4; offsets and positions increase. An entry
has the *last* offset of a batch and that batch's position, as in Kafka: the batch with a target offset begins
at or after the position of the greatest entry at or below the target.

Source: Kafka's `OffsetIndex`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from ...errors import CorruptLogError
from .sparse_index import SparseIndex

_ENTRY = struct.Struct(">ii")
_RELATIVE = struct.Struct(">i")
_pack = _ENTRY.pack_into
_unpack = _ENTRY.unpack_from
_relative = _RELATIVE.unpack_from


class OffsetIndex(SparseIndex):
    """Offset → position."""

    __slots__ = ()
    ENTRY = _ENTRY

    @property
    def is_full(self) -> bool:
        """True when no further entry fits: the segment rolls."""
        return self._entries >= self._entries_max

    def append(self, offset: int, position: int) -> None:
        """Add an entry: `offset` is the last of the batch at `position`; both increase from entry to entry.

        Ignored when the index is full: look-ups then scan further.
        """
        entries = self._entries
        if entries < self._entries_max:
            room = self._room or self.begin()
            relative = offset - self.base_offset
            if entries:
                before, at = _unpack(room, entries * 8 - 8)
                assert before < relative and at < position, f"{self.path}: {offset} at {position}"
            _pack(room, entries * 8, relative, position)
            self._entries = entries + 1

    def lookup(self, offset: int) -> int:
        """Position from which to look for the batch with `offset`; 0 without an entry below it."""
        relative = offset - self.base_offset

        def position(view: memoryview, count: int) -> int:
            index = _floor(view, count, relative)
            return int(_unpack(view, index * 8)[1]) if index >= 0 else 0

        return self._search(position)

    def last_before(self, position: int, offset: int) -> tuple[int, int]:
        """Position and offset of the last entry at or before `position` whose offset lies below `offset`."""
        relative = offset - 1 - self.base_offset

        def found(view: memoryview, count: int) -> tuple[int, int]:
            index = min(_floor(view, count, relative), _floor_position(view, count, position))
            if index < 0:
                return 0, self.base_offset
            entry = _unpack(view, index * 8)
            return entry[1], self.base_offset + entry[0]

        return self._search(found)

    def last_position(self) -> int:
        """Position of the last entry's batch; 0 when there is none."""
        return self.entry(self._entries - 1)[1] if self._entries else 0

    def entry(self, index: int) -> tuple[int, int]:
        """Offset and position."""
        relative, position = _unpack(self._view(), index * 8)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Remove entries of batches that end at or above `offset`."""
        relative = offset - 1 - self.base_offset
        self.keep_entries(self._search(lambda view, count: _floor(view, count, relative)) + 1)

    def check_entries(self) -> None:
        """CorruptLogError when the last entry cannot belong to this segment."""
        offset, position = self.entry(self._entries - 1)
        # the first batch of a segment never has an entry: zeroes are preallocated bytes after a crash
        if offset < self.base_offset or position <= 0:
            raise CorruptLogError(f"{self.path}: last entry ({offset}, {position}) is impossible")


def _floor(view: memoryview, count: int, relative: int) -> int:
    """The last entry at or below `relative`; -1 where there is none."""
    return bisect_right(range(count), relative, key=lambda i: int(_relative(view, i * 8)[0])) - 1


def _floor_position(view: memoryview, count: int, position: int) -> int:
    """The last entry whose batch begins at or before `position`; -1 where there is none."""
    return bisect_right(range(count), position, key=lambda i: int(_relative(view, i * 8 + 4)[0])) - 1
