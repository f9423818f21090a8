"""Dumps `.index` files: 8-byte entries, each with a relative offset and a position (B3).

Owns: reading the entries, a look-up with the same steps as Kafka's (a file that was not trimmed ends in zeroes, and
the result must then be wrong in the same way), the sanity check that a broker makes at start, and the check of each
entry against the log.
Source: Kafka's `OffsetIndex`, `AbstractIndex.indexSlotRangeFor`, `DumpLogSegments.dumpIndex`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .batches import FileBatch, batches
from .source import DumpError, LogFiles, OpenFile, Streams, base_offset_of, sibling

ENTRY = struct.Struct(">ii")
_WARM_ENTRIES = 8192 // ENTRY.size


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexOptions:
    """How an index is dumped: printed and verified, only verified, or only sanity-checked as at a broker's start."""

    sanity_only: bool = False
    verify_only: bool = False
    max_message_size: int = 5 * 1024 * 1024


class OffsetIndexFile:
    """The entries of an `.index` file."""

    def __init__(self, data: bytes, path: str) -> None:
        self._data = data
        self.path = path
        self.base_offset = base_offset_of(path)
        self.entries = len(data) // ENTRY.size

    def entry(self, slot: int) -> tuple[int, int]:
        """Returns (offset, position) of the entry at `slot`."""
        relative, position = ENTRY.unpack_from(self._data, slot * ENTRY.size)
        return self.base_offset + relative, position

    def check(self, absolute: str) -> None:
        """Makes the sanity check of a starting broker; DumpError with Kafka's message."""
        if self.entries and self.entry(self.entries - 1)[0] < self.base_offset:
            raise DumpError(
                f"Corrupt index found, index file {absolute} has non-zero size but the last offset is "
                f"{self.entry(self.entries - 1)[0]} which is less than the base offset {self.base_offset}"
            )
        if len(self._data) % ENTRY.size:
            raise DumpError(
                f"Index file {absolute} is corrupt, found {len(self._data)} bytes which is neither "
                f"positive nor a multiple of {ENTRY.size}"
            )

    def lookup(self, offset: int) -> int:
        """Returns the position in the log where a search for `offset` begins."""
        if not self.entries:
            return 0
        warm = max(0, self.entries - 1 - _WARM_ENTRIES)
        if self.entry(warm)[0] < offset:
            return self._search(offset, warm, self.entries - 1)
        if self.entry(0)[0] > offset:
            return 0
        return self._search(offset, 0, warm)

    def _search(self, offset: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            found, position = self.entry(middle)
            if found == offset:
                return position
            if found > offset:
                high = middle - 1
            else:
                low = middle
        return self.entry(low)[1]


def read_index(files: LogFiles, path: str) -> OffsetIndexFile:
    """Reads the index at `path`; FileNotFoundError when the file does not exist."""
    return OffsetIndexFile(read_whole(files, path), path)


def read_whole(files: LogFiles, path: str) -> bytes:
    """Reads all bytes of a file."""
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def dump_index(files: LogFiles, streams: Streams, path: str, options: IndexOptions) -> list[tuple[int, int]]:
    """Prints the file; returns (offset in the index, offset in the log) of the entries that do not match the log."""
    log_path = sibling(path, ".log")
    log = files.open(log_path)
    try:
        index = read_index(files, path)
        if not index.entries:
            streams.out(f"{path} is empty.\n")
            return []
        if options.sanity_only:
            index.check(files.absolute(path))
            streams.out(f"{path} passed sanity check.\n")
            return []
        return _verify(index, log, log_path, streams, options)
    finally:
        log.close()


def _verify(
    index: OffsetIndexFile, log: OpenFile, log_path: str, streams: Streams, options: IndexOptions
) -> list[tuple[int, int]]:
    mismatches: list[tuple[int, int]] = []
    for slot in range(index.entries):
        offset, position = index.entry(slot)
        if offset == index.base_offset and slot > 0:
            break  # zeroes after the last entry: the file was not trimmed
        batch = _batch_at(log, log_path, position, options.max_message_size)
        if batch.header.last_offset != offset:
            mismatches.append((offset, batch.header.last_offset))
        if not options.verify_only:
            streams.out(f"offset: {offset} position: {position}\n")
    return mismatches


def _batch_at(log: OpenFile, log_path: str, position: int, most: int) -> FileBatch:
    for batch in batches(log, log_path, start=position, most=most):
        return batch
    raise DumpError(f"{log_path}: no complete batch of at most {most} bytes at position {position}")
