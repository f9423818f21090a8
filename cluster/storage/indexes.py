"""Sparse indexes of a segment (B3, B4): offset → position, timestamp → offset.

Owns: the entries in memory, byte for byte as in the file, and bringing them to the file.

    .index      8 bytes: relative offset i4, position i4; offsets increase
    .timeindex  12 bytes: timestamp i8, relative offset i4; timestamps strictly increase

An offset entry names the *last* offset of a batch and that batch's position, as Kafka's do: the batch
that holds a target begins at or after the position of the greatest entry at or below the target.
Entries are kept in memory and reach the file by `write` (roll, flush, close): a crash loses index
files, never records, and recovery rebuilds them. `write` may run on a thread beside the loop's
appends; it writes at fixed positions, so writing the same entries twice is harmless.

Source: Kafka's `AbstractIndex`, `OffsetIndex`, `TimeIndex`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from ..errors import CorruptLogError
from ..host.seam import Disk, DiskFile

RELATIVE_OFFSET_MAX = 2**31 - 1


class _SparseIndex:
    """Entries of one fixed size, in order."""

    __slots__ = ("_data", "_disk", "_entries_max", "_file", "_written", "base_offset", "path")
    ENTRY: struct.Struct

    def __init__(self, disk: Disk, path: str, base_offset: int, bytes_max: int) -> None:
        self._disk = disk
        self._data: bytearray = bytearray()
        self._file: DiskFile | None = None
        self._written = 0
        self._entries_max = bytes_max // self.ENTRY.size
        self.path = path
        self.base_offset = base_offset

    def __len__(self) -> int:
        return len(self._data) // self.ENTRY.size

    def load(self) -> None:
        """Read the file; CorruptLogError when it is missing or cannot be one (it is then rebuilt)."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            raise CorruptLogError(f"{self.path}: missing") from None
        if len(data) % self.ENTRY.size:
            raise CorruptLogError(
                f"{self.path}: {len(data)} bytes, not a multiple of {self.ENTRY.size}"
            )
        self._data = bytearray(data)
        self._written = len(data)
        self._check()

    def _check(self) -> None:
        raise NotImplementedError

    def write(self) -> None:
        """Bring the entries to the file; creates it even when there are none."""
        if self._file is None:
            self._file = self._disk.open(self.path)
            if self._file.size() > self._written:
                self._file.truncate(self._written)
        start, end = self._written, len(self._data)
        if end > start:
            self._file.write_at(start, bytes(self._data[start:end]))
            self._written = end

    def sync(self) -> None:
        """BLOCKS. Write and fsync."""
        self.write()
        if self._file is not None:
            self._file.sync()

    def clear(self) -> None:
        """Forget every entry, in the file too."""
        self._cut(0)

    def _cut(self, entries: int) -> None:
        size = entries * self.ENTRY.size
        del self._data[size:]
        if self._written > size or size == 0:
            self._written = min(self._written, size)
            if self._file is None:
                self._file = self._disk.open(self.path)
            self._file.truncate(size)

    def close(self) -> None:
        """Give the file back; what was not written is lost."""
        if self._file is not None:
            self._file.close()
            self._file = None


class OffsetIndex(_SparseIndex):
    """`.index`."""

    __slots__ = ()
    ENTRY = struct.Struct(">ii")

    @property
    def is_full(self) -> bool:
        """True when there is room for no further entry: the segment rolls."""
        return len(self) >= self._entries_max

    def append(self, offset: int, position: int) -> None:
        """`offset`, above all before it, is the last of the batch at `position`."""
        self._data += self.ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """Position from which to look for the batch with `offset`; 0 when no entry helps."""
        index = self._floor(offset)
        return int(self.ENTRY.unpack_from(self._data, index * 8)[1]) if index >= 0 else 0

    def truncate_to(self, offset: int) -> None:
        """Drop entries of batches that end at or above `offset`."""
        self._cut(self._floor(offset - 1) + 1)

    def last_position(self) -> int:
        """Position of the last entry's batch; 0 when there is none."""
        return int(self.ENTRY.unpack_from(self._data, len(self._data) - 8)[1]) if self._data else 0

    def _floor(self, offset: int) -> int:
        relative = offset - self.base_offset
        unpack, data = self.ENTRY.unpack_from, self._data
        return bisect_right(range(len(self)), relative, key=lambda i: unpack(data, i * 8)[0]) - 1

    def _check(self) -> None:
        if self._data and self.ENTRY.unpack_from(self._data, len(self._data) - 8)[0] < 0:
            raise CorruptLogError(f"{self.path}: last entry lies before base {self.base_offset}")


class TimeIndex(_SparseIndex):
    """`.timeindex`."""

    __slots__ = ()
    ENTRY = struct.Struct(">qi")

    @property
    def is_full(self) -> bool:
        """True when only the entry that closing the segment adds still fits."""
        return len(self) >= self._entries_max - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Up to `offset` nothing is later than `timestamp`; no entry unless it is later than before."""
        if timestamp > self.last()[0]:
            self._data += self.ENTRY.pack(timestamp, offset - self.base_offset)

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (-1, base offset) when there is none."""
        return self._entry(len(self) - 1)

    def lookup(self, timestamp: int) -> int:
        """Offset from which to look for the first record at or after `timestamp`."""
        unpack, data = self.ENTRY.unpack_from, self._data
        index = bisect_right(range(len(self)), timestamp, key=lambda i: unpack(data, i * 12)[0]) - 1
        return self._entry(index)[1]

    def truncate_to(self, offset: int) -> None:
        """Drop entries at or above `offset`."""
        relative = offset - self.base_offset
        unpack, data = self.ENTRY.unpack_from, self._data
        keep = bisect_right(range(len(self)), relative - 1, key=lambda i: unpack(data, i * 12)[1])
        self._cut(keep)

    def _entry(self, index: int) -> tuple[int, int]:
        if index < 0:
            return -1, self.base_offset
        timestamp, relative = self.ENTRY.unpack_from(self._data, index * 12)
        return timestamp, self.base_offset + relative

    def _check(self) -> None:
        if self._data and (self.last()[0] < self._entry(0)[0] or self.last()[1] < self.base_offset):
            raise CorruptLogError(f"{self.path}: last entry {self.last()} lies before the first")
