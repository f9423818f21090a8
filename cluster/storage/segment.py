"""A segment: one `.log` file of whole batches in offset order, with its two indexes.

Owns: the bytes of the file, what the indexes say of them, the largest timestamp seen.
Invariants: `size` is where the last whole batch ends; every batch's base offset is at or above the
segment's; every relative offset fits 31 bits.
What may fail: OSError from the disk; CorruptLogError where bytes cannot be a batch.

Source: Kafka's `LogSegment`, `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import CorruptLogError
from ..host.seam import Buffer, Disk
from ..ids import LeaderEpoch, Offset
from ..wire.batches import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    SPAN,
    BatchHeader,
    Record,
    decode_records,
    header_at,
)
from .files import DELETED, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, file_name
from .indexes import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from .results import AppendedBatch, FetchData

SCAN_BYTES = 256 * 1024
"""Read at once when walking headers."""

_span = SPAN.unpack_from


class LogSegment:
    """One segment, open. New ones are created by opening them."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_folder",
        "_index_interval",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "size",
        "times",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        index_interval: int,
        index_bytes_max: int,
        created_ms: int,
    ) -> None:
        def path(suffix: str) -> str:
            return f"{folder}/{file_name(base_offset, suffix)}"

        self._disk = disk
        self._folder = folder
        self._index_interval = index_interval
        self._bytes_since_index = 0
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file = disk.open(path(LOG))
        self.size = self.file.size()
        self.offsets = OffsetIndex(disk, path(OFFSET_INDEX), base_offset, index_bytes_max)
        self.times = TimeIndex(disk, path(TIME_INDEX), base_offset, index_bytes_max)
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    def load_indexes(self) -> None:
        """Read both index files; CorruptLogError when one is missing or cannot be one."""
        self.offsets.load()
        self.times.load()
        if self.offsets.last_position() >= max(self.size, 1):
            raise CorruptLogError(f"{self.offsets.path}: points past the end of {self.file.path}")
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        if self.size >= HEADER_SIZE:
            self.first_timestamp = header_at(self.file.read_at(0, HEADER_SIZE)).max_timestamp

    def append(self, data: Buffer, batches: Sequence[AppendedBatch]) -> None:
        """Append `data`, which `batches` describes, in one write.

        OSError: nothing of it stays, in the file or in the indexes.
        """
        start = self.file.append((data,))
        assert start == self.size, f"{self.file.path}: {start} bytes, the log knows {self.size}"
        for batch in batches:
            self.note_batch(
                start + batch.position, batch.size, batch.last_offset, batch.max_timestamp
            )
        self.size = start + len(data)

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Let the indexes know of a batch in the file; in order, at appending and at recovery."""
        if self.first_timestamp < 0:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self._index_interval:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def should_roll(
        self, size: int, last_offset: int, timestamp: int, *, bytes_max: int, age_ms: int, now: int
    ) -> bool:
        """B6: would `size` more bytes up to `last_offset`, of records at `timestamp`, not go here?"""
        if self.size == 0:
            return False
        if self.size + size > bytes_max or last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        # by record time as Kafka: what is replayed from long ago rolls as it did then
        begun = self.first_timestamp
        age = timestamp - begun if begun >= 0 else now - self.created_ms
        return age > age_ms or self.offsets.is_full or self.times.is_full

    def become_inactive(self) -> None:
        """Nothing more will be appended: complete the time index and write both files."""
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.write_indexes()

    def write_indexes(self) -> None:
        """Bring both indexes to their files."""
        self.offsets.write()
        self.times.write()

    def read(
        self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool
    ) -> FetchData | None:
        """Whole batches from the one with `offset`, based below `upper`; None when all lie before it."""
        found = self.find(offset)
        if found is None:
            return None
        position, base, size = found
        if base >= upper or (size > max_bytes and not at_least_one):
            return FetchData([], 0, Offset(offset))
        data = self.file.read_at(position, min(max(max_bytes, size), self.size - position))
        end = self._whole_batches(data, position, upper)
        part: Buffer = data if end == len(data) else memoryview(data)[:end]
        return FetchData([part], end, Offset(base))

    def _whole_batches(self, data: bytes, position: int, upper: int) -> int:
        """Bytes of `data`, read at `position`, that are whole batches based below `upper`."""
        at = 0
        end = len(data)
        while at + HEADER_SIZE <= end:
            base, length, _ = _span(data, at)
            following = at + length + LOG_OVERHEAD
            if base >= upper or following > end:
                break
            if following - at < HEADER_SIZE:
                raise self._no_batch(position + at, f"length {length}")
            at = following
        return at

    def find(self, offset: int) -> tuple[int, int, int] | None:
        """Position, base offset and size of the first batch that ends at or above `offset`."""
        position = self.offsets.lookup(offset)
        read = max(self._index_interval * 2, 4096)
        while position < self.size:
            data = self.file.read_at(position, min(read, self.size - position))
            at = 0
            while at + HEADER_SIZE <= len(data):
                base, length, delta = _span(data, at)
                size = length + LOG_OVERHEAD
                if size < HEADER_SIZE:
                    raise self._no_batch(position + at, f"length {length}")
                if base + delta >= offset:
                    return position + at, base, size
                at += size
            if at == 0:
                raise self._no_batch(position, "cut off")
            position += at
        return None

    def scan(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position` to the present end."""
        end = self.size
        while position < end:
            data = self.file.read_at(position, min(SCAN_BYTES, end - position))
            at = 0
            while at + HEADER_SIZE <= len(data):
                header = header_at(data, at)
                if header.size < HEADER_SIZE:
                    raise self._no_batch(position + at, f"length {header.length}")
                yield position + at, header
                at += header.size
            if at == 0:
                raise self._no_batch(position, "cut off")
            position += at

    def end_offset(self) -> Offset:
        """Offset after the last batch, by walking from the last index entry."""
        last = self.base_offset - 1
        for position, header in self.scan(self.offsets.last_position()):
            last = header.last_offset
            if position + header.size > self.size:
                raise self._no_batch(position, "cut off")
        return Offset(last + 1)

    def truncate_to(self, offset: int) -> Offset:
        """Cut off every batch that ends at or above `offset`; returns the new end offset.

        That is `offset`, or the base offset of the batch that held it: batches are never split.
        """
        found = self.find(offset)
        if found is None:
            return Offset(offset)
        position, base, _ = found
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        self._bytes_since_index = 0
        self._reload_timestamps()
        return Offset(min(base, offset))

    def _reload_timestamps(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        if self.size == 0:
            self.first_timestamp = -1
        for _, header in self.scan(self.offsets.last_position()):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def find_timestamp(
        self, timestamp: int, start_offset: int
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The first record at or after both: its time, offset and leader epoch."""
        position = self.offsets.lookup(max(self.times.lookup(timestamp), start_offset))
        for at, header in self.scan(position):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in self._records(at, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, Offset(record.offset), LeaderEpoch(header.leader_epoch)
        return None

    def _records(self, position: int, header: BatchHeader) -> list[Record]:
        return decode_records(self.file.read_at(position, header.size))

    def reset_indexes(self) -> None:
        """Forget both indexes and every timestamp: recovery tells them anew by `note_batch`."""
        self.offsets.clear()
        self.times.clear()
        self._bytes_since_index = 0
        self.first_timestamp = self.max_timestamp = -1
        self.max_timestamp_offset = self.base_offset

    def flush(self, *, indexes: bool) -> None:
        """BLOCKS. fsync the log file, and the index files where they are complete."""
        self.file.sync()
        if indexes:
            self.offsets.sync()
            self.times.sync()

    def file_paths(self) -> list[str]:
        """Every file that goes when the segment goes; some may be absent."""
        suffixes = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
        return [f"{self._folder}/{file_name(self.base_offset, suffix)}" for suffix in suffixes]

    def mark_deleted(self) -> list[str]:
        """Rename its files to `.deleted` (readers keep theirs open); returns the new paths."""
        renamed: list[str] = []
        for path in self.file_paths():
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED)
                renamed.append(path + DELETED)
        return renamed

    def remove(self) -> None:
        """Close and delete its files at once: only recovery does, before anyone reads."""
        self.close()
        for path in self.file_paths():
            self._disk.remove(path)

    def close(self) -> None:
        """Give its files back; indexes must have been written."""
        self.file.close()
        self.offsets.close()
        self.times.close()

    def _no_batch(self, position: int, what: str) -> CorruptLogError:
        return CorruptLogError(f"{self.file.path}: no batch at byte {position}: {what}")
