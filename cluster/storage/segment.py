"""A segment: one `.log` file of whole batches in offset order, with its three indexes.

Owns: the bytes of the file, what the indexes say of them, the largest timestamp seen.
Invariants: `size` is where the last whole batch ends; every batch's base offset is at or above the
segment's; every relative offset fits 31 bits. An index only says where to begin: a look-up that finds no
fitting batch there begins at the front, so that a foreign index costs time and never a record.
What may fail: OSError from the disk; CorruptLogError where bytes cannot be a batch.

Source: Kafka's `LogSegment`, `FileRecords`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence

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
from .file_regions import REGION_BYTES_LEAST, DataToSend, read_region
from .files import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_FILES,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    file_name,
)
from .indexes.offset_index import OffsetIndex
from .indexes.sparse_index import RELATIVE_OFFSET_MAX
from .indexes.time_index import TimeIndex
from .indexes.transaction_index import TransactionIndex
from .results import AppendedBatch, FetchData
from .segment_options import SegmentOptions

SCAN_BYTES = 256 * 1024
"""Read at once when walking headers."""

_UNKNOWN = -2


def _nothing() -> None:
    """Before a rename nothing is to be done."""


_span = SPAN.unpack_from


class LogSegment:
    """One segment, open. New ones are created by opening them."""

    __slots__ = (
        "_disk",
        "_first_timestamp",
        "_folder",
        "_index_interval",
        "_indexed_timestamp",
        "_next_entry_above",
        "_roll_jitter_ms",
        "aborted",
        "base_offset",
        "created_ms",
        "file",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "size",
        "suffix",
        "times",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        options: SegmentOptions,
        *,
        suffix: str = "",
    ) -> None:
        """`suffix` comes after every file's own: `.cleaned`, `.swap`."""
        self._disk = disk
        self._folder = folder
        self._index_interval = options.index_interval
        self._roll_jitter_ms = options.roll_jitter_ms
        self.base_offset = base_offset
        self.created_ms = options.created_ms
        self.suffix = suffix
        self.file = disk.open(self.path_of(LOG))
        self.size = self.file.size()
        maps, index_bytes = options.maps, options.index_bytes_max
        self.offsets = OffsetIndex(
            disk, self.path_of(OFFSET_INDEX), base_offset, bytes_max=index_bytes, maps=maps
        )
        self.times = TimeIndex(
            disk, self.path_of(TIME_INDEX), base_offset, bytes_max=index_bytes, maps=maps
        )
        self.aborted = TransactionIndex(disk, self.path_of(TXN_INDEX), base_offset)
        self._next_entry_above = self.size + options.index_interval
        self._forget_timestamps()

    def path_of(self, kind: str) -> str:
        """Where its file of that kind (`.log`, `.index`, …) lies, or would."""
        return f"{self._folder}/{file_name(self.base_offset, kind)}{self.suffix}"

    def load_indexes(self) -> None:
        """Learn of the index files; CorruptLogError when one is missing or cannot be one."""
        empty = self.size == 0
        self.offsets.load(may_be_absent=empty)
        self.times.load(may_be_absent=empty)
        self.aborted.load()
        if self.offsets.last_position() >= max(self.size, 1):
            raise CorruptLogError(f"{self.offsets.path}: points past the end of {self.file.path}")
        if empty and (len(self.times) or len(self.aborted)):
            raise CorruptLogError(f"{self.times.path}: has entries, and the segment no record")
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self._indexed_timestamp = self.max_timestamp

    # -- append

    def append(self, parts: Sequence[Buffer], size: int, batches: Sequence[AppendedBatch]) -> None:
        """Append the `size` bytes of `parts`, which `batches` describes, in one write.

        OSError: nothing of it stays, in the file or in the indexes.
        """
        if self.size == 0:
            self.offsets.begin()
            self.times.begin()
        try:
            start = self.file.append(parts)
        except OSError:
            with contextlib.suppress(OSError):  # it has refused already; the first error tells
                if self.file.size() > self.size:
                    self.file.truncate(self.size)
            raise
        assert start == self.size, f"{self.file.path}: {start} bytes, the log knows {self.size}"
        for batch in batches:
            position, _, _, last_offset, max_timestamp, _ = batch
            position += start
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.max_timestamp_offset = last_offset
            if position > self._next_entry_above:
                self.note_entry(position, last_offset)
        if start == 0:
            self._first_timestamp = batches[0].max_timestamp
        self.size = start + size

    def note_entry(self, position: int, last_offset: int) -> int:
        """Give the batch at `position` its index entries, `max_timestamp` being that up to its end.

        In order, at appending and at recovery; returns above which position the next entry is due.
        """
        self.offsets.append(last_offset, position)
        if self.max_timestamp > self._indexed_timestamp:
            self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._indexed_timestamp = self.max_timestamp
        self._next_entry_above = above = position + self._index_interval
        return above

    def roll_reason(
        self,
        size: int,
        last: AppendedBatch,
        bytes_max: int,
        age_ms: int,
        wall_ms: Callable[[], int],
    ) -> str:
        """B6: why `size` more bytes, the batch `last` at their end, do not go here; "" when they do.

        An empty segment only gives way to an offset that it cannot name.
        """
        if last.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return "offset overflow"
        if self.size == 0:
            return ""
        if self.size + size > bytes_max:
            return "size"
        # by record time as Kafka: what is replayed from long ago rolls as it did then
        begun = self._first_timestamp
        if begun == _UNKNOWN:
            begun = self._first_timestamp = header_at(
                self.file.read_at(0, HEADER_SIZE)
            ).max_timestamp
        age = last.max_timestamp - begun if begun >= 0 else wall_ms() - self.created_ms
        if age > age_ms - self._roll_jitter_ms:
            return "age"
        if self.offsets.is_full:
            return "offset index full"
        return "time index full" if self.times.is_full else ""

    def become_inactive(self) -> None:
        """Nothing more will be appended: complete the time index and trim the index files."""
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
        self.offsets.seal()
        self.times.seal()
        self.aborted.close()

    # -- read

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

    def read_to_send(
        self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool
    ) -> DataToSend | FetchData | None:
        """`read`, as a region of the file where that is worth it (B12)."""
        if max_bytes < REGION_BYTES_LEAST:
            return self.read(offset, max_bytes, upper, at_least_one=at_least_one)
        return read_region(self, offset, max_bytes, upper, at_least_one=at_least_one)

    def border_before(self, limit: int, upper: int, least: int) -> int:
        """Where a batch begins, as near below position `limit` and offset `upper` as the index knows.

        `least` where it knows nothing beyond, or nothing true.
        """
        position, offset = self.offsets.last_before(limit, upper)
        if position <= least or not self._may_begin(
            self.file.read_at(position, HEADER_SIZE), position, offset
        ):
            return least
        return position

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
        data = self._ahead(position)
        if position and not self._may_begin(data, position, offset):
            position, data = 0, self._ahead(0)
        while data:
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
            data = self._ahead(position)
        return None

    def _ahead(self, position: int) -> bytes:
        """What one index interval holds, about; empty at the end."""
        if position >= self.size:
            return b""
        read = max(self._index_interval * 2, 4096)
        return self.file.read_at(position, min(read, self.size - position))

    def _may_begin(self, data: bytes, position: int, offset: int) -> bool:
        """True when `data`, read at `position`, is a batch at or below `offset`: the index is this file's."""
        return len(data) >= HEADER_SIZE and self._may_begin_at(header_at(data), position, offset)

    def _may_begin_at(self, header: BatchHeader, position: int, offset: int) -> bool:
        fits = HEADER_SIZE <= header.size <= self.size - position
        return fits and header.magic == 2 and self.base_offset <= header.base_offset <= offset

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

    def load_end(self) -> Offset:
        """Offset after the last batch, by walking from the last index entry; completes `max_timestamp`.

        CorruptLogError where the last entries of the indexes are not of this file.
        """
        start = self.offsets.last_position()
        time, time_offset = self.times.last()
        time_at = -1
        last = self.base_offset - 1
        for position, header in self.scan(start):
            if position == start > 0 and not self._may_begin_at(
                header, start, self._last_indexed()
            ):
                raise CorruptLogError(f"{self.offsets.path}: its last entry is of another file")
            last = header.last_offset
            if header.base_offset <= time_offset <= last:
                time_at = header.max_timestamp
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last
            if position + header.size > self.size:
                raise self._no_batch(position, "cut off")
        if time >= 0 and (time_at if time_at >= 0 else self._time_at(time_offset)) != time:
            raise CorruptLogError(f"{self.times.path}: its last entry is of another file")
        return Offset(last + 1)

    def _last_indexed(self) -> int:
        return self.offsets.entry(len(self.offsets) - 1)[0]

    def _time_at(self, offset: int) -> int:
        """The largest timestamp of the batch that holds `offset`; -1 where there is none."""
        found = self.find(offset)
        if found is None or found[1] > offset:
            return -1
        return header_at(self.file.read_at(found[0], HEADER_SIZE)).max_timestamp

    def find_timestamp(
        self, timestamp: int, start_offset: int
    ) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The first record at or after both: its time, offset and leader epoch."""
        time, offset = self.times.lookup(timestamp)
        if offset <= start_offset or self._time_at(offset) != time:
            offset = start_offset
        found = self.find(offset)
        if found is None:
            return None
        for at, header in self.scan(found[0]):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for record in self._records(at, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, Offset(record.offset), LeaderEpoch(header.leader_epoch)
        return None

    def _records(self, position: int, header: BatchHeader) -> list[Record]:
        return decode_records(self.file.read_at(position, header.size))

    # -- cut

    def truncate_to(self, offset: int) -> Offset:
        """Cut off every batch that ends at or above `offset`; returns the new end offset.

        That is `offset`, or the base offset of the batch that held it: batches are never split.
        """
        found = self.find(offset)
        if found is None:
            return Offset(offset)
        position, base, _ = found
        told = not self.times.is_full  # of every largest timestamp up to the last entry
        self.offsets.truncate_to(min(base, offset))
        self.times.truncate_to(min(base, offset))
        self.aborted.truncate_to(offset)
        self.file.truncate(position)
        self.size = position
        self._next_entry_above = position + self._index_interval
        self._reload_timestamps(told=told)
        return Offset(min(base, offset))

    def _reload_timestamps(self, *, told: bool) -> None:
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self._indexed_timestamp = self.max_timestamp
        if self.size == 0:
            self._first_timestamp = _UNKNOWN
        offset = self.max_timestamp_offset
        start = self.offsets.last_position() if told else self.offsets.lookup(offset)
        for _, header in self.scan(start):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def reset_indexes(self) -> None:
        """Forget all indexes and every timestamp."""
        self.offsets.clear()
        self.times.clear()
        self.aborted.clear()
        self._next_entry_above = self.size + self._index_interval
        self._forget_timestamps()

    def _forget_timestamps(self) -> None:
        self._first_timestamp = _UNKNOWN
        self.max_timestamp = self._indexed_timestamp = -1
        self.max_timestamp_offset = self.base_offset

    def begin_indexes(self) -> int:
        """Forget all indexes; they are told anew by `note_entry`, and written by `become_inactive`.

        Returns above which position the first entry is due.
        """
        # an entry for each interval, or each batch where that is more; one for sealing
        entries = self.file.size() // max(self._index_interval, HEADER_SIZE) + 2
        self.offsets.begin_anew(entries)
        self.times.begin_anew(entries)
        self.aborted.clear()
        self._forget_timestamps()
        self._next_entry_above = above = self._index_interval
        return above

    # -- files

    def flush(self, *, indexes: bool) -> None:
        """BLOCKS. fsync the log file, and the index files where they are complete."""
        self.file.sync()
        if indexes:
            self.offsets.sync()
            self.times.sync()
            self.aborted.sync()

    def file_paths(self, *, snapshot: bool = True) -> list[str]:
        """Every file that goes when the segment goes; some may be absent."""
        kinds = (*SEGMENT_FILES, SNAPSHOT) if snapshot else SEGMENT_FILES
        return [self.path_of(kind) for kind in kinds]

    def change_suffix(self, suffix: str, *, before_each: Callable[[], None] = _nothing) -> None:
        """Rename all its files (`.cleaned` → `.swap` → none), the log file first; they stay open.

        `before_each` is called before each rename: a crash may be wanted there.
        """
        before = [self.path_of(kind) for kind in SEGMENT_FILES]
        self.suffix = suffix
        # paths first: a look-up on another thread that maps an index meanwhile finds or makes one
        # that the rename replaces
        self.offsets.path = self.path_of(OFFSET_INDEX)
        self.times.path = self.path_of(TIME_INDEX)
        self.aborted.path = self.path_of(TXN_INDEX)
        after = [self.path_of(kind) for kind in SEGMENT_FILES]
        for source, target in zip(before, after, strict=True):
            if self._disk.exists(source):
                before_each()
                self._disk.rename(source, target)

    def mark_deleted(
        self, *, keep_snapshots: Collection[int] = (), before_each: Callable[[], None] = _nothing
    ) -> list[str]:
        """Rename its files to `.deleted` (readers keep theirs open); returns the new paths.

        A producer snapshot at one of the offsets `keep_snapshots` stays as it is.
        """
        paths = [f"{path}{DELETED}" for path in self.file_paths(snapshot=False)]
        snapshot = f"{self._folder}/{file_name(self.base_offset, SNAPSHOT)}"
        if self.base_offset not in keep_snapshots and self._disk.exists(snapshot):
            before_each()
            self._disk.rename(snapshot, snapshot + DELETED)
            paths.append(snapshot + DELETED)
        self.change_suffix(self.suffix + DELETED, before_each=before_each)
        return [path for path in paths if self._disk.exists(path)]

    def remove(self) -> None:
        """Close and delete its files at once: only recovery does, before anyone reads."""
        self.close()
        for path in self.file_paths():
            self._disk.remove(path)

    def close(self) -> None:
        """Give its files back as they are."""
        self.file.close()
        self.offsets.close()
        self.times.close()
        self.aborted.close()

    def _no_batch(self, position: int, what: str) -> CorruptLogError:
        return CorruptLogError(f"{self.file.path}: no batch at byte {position}: {what}")
