"""`.txnindex`: the aborted transactions whose marker lies in the segment (F5).

34 bytes an entry, big-endian: version i2 (0), producer id i8, first offset i8, last offset i8 (the marker's),
last stable offset i8 when the marker was appended. Markers' offsets increase. The first entry creates the
file: most segments have none.

Owns: the file. What may fail: OSError; CorruptLogError from `load`.
Source: Kafka's `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ...errors import CorruptLogError
from ...host.seam import Disk, DiskFile

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    """One aborted transaction of one producer."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, by the offset of their marker."""

    __slots__ = ("_disk", "_file", "_last_offset", "_size", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self._file: DiskFile | None = None
        self._size = 0
        self._last_offset = -1
        self.path = path
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._size // ENTRY.size

    def load(self) -> None:
        """Load the file, if there is one; CorruptLogError when it is not a transaction index."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return
        if len(data) % ENTRY.size:
            raise CorruptLogError(f"{self.path}: {len(data)} bytes, not a multiple of {ENTRY.size}")
        last = self.base_offset - 1
        for version, _, first, offset, _ in ENTRY.iter_unpack(data):
            if version != VERSION or offset <= last or first > offset:
                raise CorruptLogError(f"{self.path}: entry up to offset {offset} is impossible")
            last = offset
        self._size, self._last_offset = len(data), last

    def append(self, aborted: AbortedTxn) -> None:
        """Add a transaction whose marker was just appended."""
        assert aborted.first_offset <= aborted.last_offset, f"{self.path}: {aborted}"
        assert aborted.last_offset >= self.base_offset, (
            f"{self.path}: the marker of {aborted} lies in an earlier segment"
        )
        if aborted.last_offset <= self._last_offset:
            raise ValueError(f"{self.path}: {aborted} after marker {self._last_offset}")
        if self._file is None:
            self._file = self._disk.open(self.path)
        self._file.append((ENTRY.pack(VERSION, *aborted),))
        self._size += ENTRY.size
        self._last_offset = aborted.last_offset

    def entries(self) -> list[AbortedTxn]:
        """All entries, by the offset of their marker."""
        if not self._size:
            return []
        data = self._disk.read(self.path)
        return [AbortedTxn(*fields[1:]) for fields in ENTRY.iter_unpack(data[: self._size])]

    def collect(self, start: int, upper: int) -> tuple[list[AbortedTxn], bool]:
        """The transactions that overlap [start, upper), and whether no later segment can have a further one."""
        found: list[AbortedTxn] = []
        for aborted in self.entries():
            if aborted.last_offset >= start and aborted.first_offset < upper:
                found.append(aborted)
            if aborted.last_stable_offset >= upper:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker lies at or above `offset`."""
        if self._last_offset >= offset:
            kept = [aborted for aborted in self.entries() if aborted.last_offset < offset]
            self._cut(len(kept) * ENTRY.size)
            self._last_offset = kept[-1].last_offset if kept else -1

    def clear(self) -> None:
        """Remove every entry, in the file as well."""
        if self._size or self._disk.exists(self.path):
            self._cut(0)
        self._last_offset = -1

    def _cut(self, size: int) -> None:
        assert size <= self._size or not size, f"{self.path}: a cut from {self._size} bytes to {size}"
        if self._file is None:
            self._file = self._disk.open(self.path)
        self._file.truncate(size)
        self._size = size

    def sync(self) -> None:
        """BLOCKS. fsync the file, even an empty one, and its name, which the first abort created."""
        self._disk.sync_file(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
