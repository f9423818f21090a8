"""A segment: one `.log` file of whole batches in offset order, with its three indexes.

Owns: the number of valid bytes, the entries of the indexes, the largest timestamp. Its files and their names are
`segment_files.py`'s.
Invariants: `size` is the end of the last whole batch; every batch's base offset is at or above the segment's base
offset; every relative offset fits 31 bits; the timestamp that the time index has last is not above `max_timestamp`. An
index only says where a look-up begins: one that finds no fitting batch there begins at the front of the file, so that
the index of another file costs time and never a record.
What may fail: OSError from the disk; CorruptLogError where bytes cannot be a batch.

Source: Kafka's `LogSegment`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from ..errors import CorruptLogError
from ..host.seam import Buffer, Disk
from ..ids import Offset
from ..wire.batches import HEADER_SIZE, LOG_OVERHEAD, SPAN, BatchHeader, header_at
from .file_records import no_batch, scan_headers, whole_batches
from .indexes.sparse_index import RELATIVE_OFFSET_MAX
from .results import AppendedBatch, FetchData
from .segment_files import SegmentFiles
from .segment_options import SegmentOptions

_UNKNOWN = -2


_span = SPAN.unpack_from


class LogSegment(SegmentFiles):
    """One open segment; opening creates the files of a new segment."""

    __slots__ = (
        "_first_timestamp",
        "_index_interval",
        "_indexed_timestamp",
        "_next_entry_above",
        "_roll_jitter_ms",
        "created_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(self, disk: Disk, folder: str, base_offset: int, options: SegmentOptions, *, suffix: str = "") -> None:
        """`suffix` comes after every file's own: `.cleaned`, `.swap`."""
        super().__init__(disk, folder, base_offset, options, suffix=suffix)
        self._index_interval = options.index_interval
        self._roll_jitter_ms = options.roll_jitter_ms
        self.created_ms = options.created_ms
        self.size = self.file.size()
        self._next_entry_above = self.size + options.index_interval
        self._forget_timestamps()

    def load_indexes(self) -> None:
        """Load the index files; CorruptLogError when one is missing or not an index."""
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

        OSError: nothing of it stays in the file or in the indexes.
        """
        assert batches[0].base_offset >= self.base_offset, f"{self.file.path}: {batches[0]}"
        if self.size == 0:
            self.offsets.begin()
            self.times.begin()
        try:
            start = self.file.append(parts)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is raised
                if self.file.size() > self.size:
                    self.file.truncate(self.size)
            raise
        assert start == self.size, f"{self.file.path}: {start} bytes, the log knows {self.size}"
        last = batches[-1]
        assert last.position < size, f"{self.file.path}: {last} begins behind the {size} bytes that were written"
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
        """Add index entries for the batch at `position`; `max_timestamp` includes that batch.

        Called in order of position, by appends and by recovery; returns the position above which the next entry is due.
        """
        self.offsets.append(last_offset, position)
        if self.max_timestamp > self._indexed_timestamp:
            self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self._indexed_timestamp = self.max_timestamp
        self._next_entry_above = above = position + self._index_interval
        return above

    def roll_reason(
        self, size: int, last: AppendedBatch, bytes_max: int, age_ms: int, wall_ms: Callable[[], int]
    ) -> str:
        """B6: why the segment must roll before `size` more bytes that end with the batch `last`; "" when it need not.

        An empty segment rolls only before an offset that is too far from its base offset.
        """
        if last.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return "offset overflow"
        if self.size == 0:
            return ""
        if self.size + size > bytes_max:
            return "size"
        # by record time, as Kafka: old records that are replayed roll as they did originally
        begun = self._first_timestamp
        if begun == _UNKNOWN:
            begun = self._first_timestamp = header_at(self.file.read_at(0, HEADER_SIZE)).max_timestamp
        age = last.max_timestamp - begun if begun >= 0 else wall_ms() - self.created_ms
        if age > age_ms - self._roll_jitter_ms:
            return "age"
        if self.offsets.is_full:
            return "offset index full"
        return "time index full" if self.times.is_full else ""

    def become_inactive(self) -> None:
        """End appends: complete the time index and trim the index files."""
        self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
        self.offsets.seal()
        self.times.seal()
        self.aborted.close()

    # -- read

    def read(self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> FetchData | None:
        """Whole batches from the batch with `offset` on, based below `upper`; None when all batches end before it."""
        found = self.find(offset)
        if found is None:
            return None
        position, base, size = found
        if base >= upper or (size > max_bytes and not at_least_one):
            return FetchData([], 0, Offset(offset))
        data = self.file.read_at(position, min(max(max_bytes, size), self.size - position))
        end = whole_batches(data, upper, self.file.path, position)
        part: Buffer = data if end == len(data) else memoryview(data)[:end]
        return FetchData([part], end, Offset(base))

    def border_before(self, limit: int, upper: int, least: int) -> int:
        """The start of a batch near below position `limit` and offset `upper`, by the offset index.

        `least` when the index has no entry above it, or a wrong one.
        """
        position, offset = self.offsets.last_before(limit, upper)
        if position <= least or not self._may_begin(self.file.read_at(position, HEADER_SIZE), position, offset):
            return least
        return position

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
                    raise no_batch(self.file.path, position + at, f"length {length}")
                if base + delta >= offset:
                    return position + at, base, size
                at += size
            if at == 0:
                raise no_batch(self.file.path, position, "cut off")
            position += at
            data = self._ahead(position)
        return None

    def _ahead(self, position: int) -> bytes:
        """About two index intervals of bytes from `position` on; empty at the end."""
        if position >= self.size:
            return b""
        read = max(self._index_interval * 2, 4096)
        return self.file.read_at(position, min(read, self.size - position))

    def _may_begin(self, data: bytes, position: int, offset: int) -> bool:
        """True when `data`, read at `position`, begins with a batch at or below `offset`: the index fits this file."""
        return len(data) >= HEADER_SIZE and self.may_begin_at(header_at(data), position, offset)

    def may_begin_at(self, header: BatchHeader, position: int, offset: int) -> bool:
        """True when a header at `position` is a batch of this segment that begins at or below `offset`."""
        fits = HEADER_SIZE <= header.size <= self.size - position
        return fits and header.magic == 2 and self.base_offset <= header.base_offset <= offset

    def scan(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from `position` to the present end."""
        return scan_headers(self.file, position, self.size)

    # -- truncate

    def truncate_to(self, offset: int) -> Offset:
        """Remove every batch that ends at or above `offset`; returns the new end offset.

        That is `offset`, or the base offset of the batch with `offset`: batches are never split.
        """
        found = self.find(offset)
        if found is None:
            return Offset(offset)
        position, base, _ = found
        complete = not self.times.is_full  # it has every largest timestamp up to its last entry
        self.offsets.truncate_to(min(base, offset))
        self.times.truncate_to(min(base, offset))
        self.aborted.truncate_to(offset)
        assert position < self.size, f"{self.file.path}: batch at {position} of {self.size} bytes"
        self.file.truncate(position)
        self.size = position
        self._next_entry_above = position + self._index_interval
        self._reload_timestamps(complete=complete)
        return Offset(min(base, offset))

    def _reload_timestamps(self, *, complete: bool) -> None:
        self.max_timestamp, self.max_timestamp_offset = self.times.last()
        self._indexed_timestamp = self.max_timestamp
        if self.size == 0:
            self._first_timestamp = _UNKNOWN
        offset = self.max_timestamp_offset
        start = self.offsets.last_position() if complete else self.offsets.lookup(offset)
        for _, header in self.scan(start):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset

    def reset_indexes(self) -> None:
        """Clear all indexes and timestamps."""
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
        """Begin to rebuild all indexes: `note_entry` adds entries, `become_inactive` writes them.

        Returns the position above which the first entry is due.
        """
        # one entry for each interval or each batch (the larger), and one for sealing
        entries = self.file.size() // max(self._index_interval, HEADER_SIZE) + 2
        self.offsets.begin_rebuild(entries)
        self.times.begin_rebuild(entries)
        self.aborted.clear()
        self._forget_timestamps()
        self._next_entry_above = above = self._index_interval
        return above
