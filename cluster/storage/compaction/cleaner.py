"""Compacting one log (B8): pass one maps each key of the dirty part to its last offset; pass two rewrites.

    0 ………… first dirty ………………………… end ……… first uncleanable ……… active
    | clean: rewritten | dirty: mapped   | the map was full | not compacted |

Pass one walks the dirty part up to `first_uncleanable`, or until the map is full; `end` is the offset where it stopped.
Pass two walks from the log's first segment to `end`: segments are grouped so that each group fits one
segment, and each group is rewritten to one `.cleaned` segment (record_filter.py decides which records stay) that
replaces it (segment_swap.py).

Some batches stay although their keys have newer records, so that offsets and producer states survive:

* the last batch of the round, without records if necessary: it says up to which offset the log was cleaned;
* the batch with the last sequence of each producer in the producer states, without records if necessary;
* for a producer without data, the marker with its epoch.

Concurrency: `Cleaning` is a generator. Each step runs on a thread, one after another, reads inactive
segments only, and yields the number of bytes it processed, so that the driver may pace it. A finished group is yielded
as a `Replacement`, which the driver swaps in on the loop. `check` runs before each step and raises CleaningAbortedError
when the log was truncated, deleted, paused, or went offline (log_cleaner_manager.py).

Memory: the map, one batch, and `READ_BYTES` of a source beside what cleaned_segment.py holds.
What may fail: CleaningAbortedError; OSError; CorruptLogError (a damaged batch: the log is left unchanged).
Source: Kafka's `Cleaner`, `LogToClean`; KIP-58, KIP-98, KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import CorruptLogError, StorageError
from ...host.seam import Buffer, Host
from ...ids import Offset
from ...wire.batches import HEADER_SIZE, BatchHeader, header_at
from ..indexes.sparse_index import RELATIVE_OFFSET_MAX
from ..indexes.transaction_index import AbortedTxn
from ..log import Log
from ..producers.producer_entry import ProducerEntry
from ..record_checks import RECORD_BYTES_MAX
from ..record_spans import record_spans
from ..segment import LogSegment
from .cleaned_segment import CleanedSegment
from .cleaned_transactions import CleanedTransactions
from .offset_map import OffsetMap
from .record_filter import RecordFilter, records_of

READ_BYTES = 512 * 1024
"""Bytes that one step reads and processes; a larger batch is read whole."""


class CleaningAbortedError(StorageError):
    """The cleaning of a log must stop; what it has written is discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """A log, and the part of it to compact."""

    log: Log
    first_dirty: Offset
    first_uncleanable: Offset
    """A segment's base offset; records from here on are not compacted."""
    clean_bytes: int
    cleanable_bytes: int
    must: bool = False
    """A dirty record is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The dirty share of all bytes that the cleaning would read."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """`new` is durable as `.cleaned`, and is to replace `old`."""

    new: CleanedSegment
    old: Sequence[LogSegment]


@dataclass(slots=True, kw_only=True)
class CleanerStats:
    """The numbers of one cleaning."""

    bytes_read: int = 0
    bytes_written: int = 0
    segments_replaced: int = 0
    map_full: bool = False
    end_offset: Offset = field(default=Offset(0))
    """The log is clean below it; the first dirty offset of the next round."""


class Cleaning:
    """One compaction of one log; made on the loop, stepped on threads."""

    def __init__(self, host: Host, task: LogToClean, offsets: OffsetMap, check: Callable[[], None]) -> None:
        log = task.log
        config = log.config
        self._host = host
        self._task = task
        self._offsets = offsets
        self._check = check
        # the present segments: later appends lie above `first_uncleanable`
        self._segments = [s for s in log.segments if s.base_offset < task.first_uncleanable]
        self._aborted: list[AbortedTxn] = []
        self._last_of_producers = _last_of_producers(log.producers.entries())
        self._segment_bytes = config.segment_bytes
        self._delete_retention_ms = config.number("delete.retention.ms")
        self._record_bytes_max = config.number(RECORD_BYTES_MAX)
        self._index_bytes = config.number("segment.index.bytes")
        self.stats = CleanerStats(end_offset=task.first_dirty)

    def steps(self) -> Generator[int | Replacement, None, None]:
        """Each step BLOCKS; yields the number of bytes it processed, or a group to swap in."""
        self._aborted = self._task.log.aborted_transactions(
            Offset(self._segments[0].base_offset), self._task.first_uncleanable
        )
        yield from self._build_map()
        end = self._offsets.latest_offset + 1
        if end <= self._task.first_dirty:
            return  # no batch of the dirty part fits the map
        limit = self._task.first_uncleanable
        assert end <= limit, f"{self._task.log.folder}: the map has records up to {end}, compaction ends at {limit}"
        keep = RecordFilter(
            self._offsets,
            now_ms=self._host.clock.wall_ms(),
            delete_retention_ms=self._delete_retention_ms,
            record_bytes_max=self._record_bytes_max,
        )
        transactions = CleanedTransactions(self._aborted)
        cleaned = [segment for segment in self._segments if segment.base_offset < end]
        for group in self._groups(cleaned):
            yield from self._clean_group(group, keep, transactions, end)
        self.stats.end_offset = Offset(end)

    # -- pass one

    def _build_map(self) -> Iterator[int]:
        offsets = self._offsets
        offsets.clear()
        start = self._task.first_dirty
        # aborted transactions that ended before would look like open ones
        transactions = CleanedTransactions(aborted for aborted in self._aborted if aborted.last_offset >= start)
        for index, segment in enumerate(self._segments):
            following = self._base_after(index)
            if following <= start:
                continue
            for batches in self._chunks(segment, start):
                for batch, header in batches:
                    if header.last_offset < start:
                        continue
                    if header.is_control:
                        transactions.is_superfluous_marker(batch, header)
                    elif not transactions.is_aborted_data(header):
                        if offsets.is_full:
                            self.stats.map_full = True
                            return
                        self._map_batch(batch, header, start)
                    offsets.update_latest_offset(header.last_offset)
                yield sum(len(batch) for batch, _ in batches)
            offsets.update_latest_offset(following - 1)  # past a gap at the segment's end

    def _map_batch(self, batch: memoryview, header: BatchHeader, start: int) -> None:
        if header.record_count:
            spans = record_spans(records_of(batch, header, self._record_bytes_max), header.record_count)
            self._offsets.put_records(spans, header.base_offset, start)

    def _base_after(self, index: int) -> int:
        """Base offset of the segment after index `index`."""
        if index + 1 < len(self._segments):
            return self._segments[index + 1].base_offset
        return self._task.first_uncleanable

    # -- pass two

    def _groups(self, segments: Sequence[LogSegment]) -> list[list[LogSegment]]:
        """Groups of neighbours that fit one segment in bytes, in both indexes and in relative offsets."""
        groups: list[list[LogSegment]] = []
        size = offsets = times = 0
        for index, segment in enumerate(segments):
            size += segment.size
            offsets += len(segment.offsets) * segment.offsets.ENTRY.size
            times += len(segment.times) * segment.times.ENTRY.size
            last_offset = self._base_after(index) - 1
            if (
                groups
                and size <= self._segment_bytes
                and max(offsets, times) <= self._index_bytes
                # an empty segment fits everywhere; else one would stay for every 2^31 offsets
                and (segment.size == 0 or last_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
            ):
                groups[-1].append(segment)
                continue
            groups.append([segment])
            size = segment.size
            offsets = len(segment.offsets) * segment.offsets.ENTRY.size
            times = len(segment.times) * segment.times.ENTRY.size
        return groups

    def _clean_group(
        self, group: Sequence[LogSegment], keep: RecordFilter, transactions: CleanedTransactions, end: int
    ) -> Iterator[int | Replacement]:
        self._check()
        cleaned = CleanedSegment(self._host, self._task.log, group[0].base_offset)
        try:
            for segment in group:
                for batches in self._chunks(segment, segment.base_offset):
                    size = 0
                    for batch, header in batches:
                        size += len(batch)
                        left = self._filtered(batch, header, keep, transactions, end)
                        if left:
                            size += len(left)
                            self.stats.bytes_written += len(left)
                            cleaned.append(left)
                        cleaned.note_aborted(transactions.take_kept())
                    yield size
            cleaned.finish()
            self._check()
            yield Replacement(new=cleaned, old=group)
        except BaseException:
            cleaned.discard()
            raise
        self.stats.segments_replaced += len(group)

    def _filtered(
        self, batch: memoryview, header: BatchHeader, keep: RecordFilter, transactions: CleanedTransactions, end: int
    ) -> Buffer:
        """The part of one batch that stays; empty when the whole batch is removed."""
        retain_empty = header.last_offset + 1 == end or self._is_last_of_producer(header)
        if header.is_control:
            return keep.filter_marker(
                batch,
                header,
                data_is_removed=transactions.is_superfluous_marker(batch, header),
                retain_empty=retain_empty,
            )
        if transactions.is_aborted_data(header):
            return keep.discard(header, retain_empty=retain_empty)
        return keep.filter_data(batch, header, retain_empty=retain_empty)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """True when the batch has a producer's last sequence, or is the marker with its epoch."""
        if header.producer_id < 0:
            return False
        last = self._last_of_producers.get(header.producer_id)
        if last is None:
            return False
        offset, epoch = last
        if offset is not None:
            return header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch

    # -- reading

    def _chunks(self, segment: LogSegment, start: int) -> Iterator[list[tuple[memoryview, BatchHeader]]]:
        """Whole batches of an inactive segment from the one with `start` on, `READ_BYTES` of them at a time."""
        position = 0
        if start > segment.base_offset:  # by walking batches, because the index may belong to another file
            found = segment.find(start)
            position = found[0] if found else segment.size
        file, end = segment.file, segment.size
        want = READ_BYTES
        while position < end:
            self._check()
            data = memoryview(file.read_at(position, min(want, end - position)))
            batches: list[tuple[memoryview, BatchHeader]] = []
            at = 0
            size = HEADER_SIZE
            while at + HEADER_SIZE <= len(data):
                header = header_at(data, at)
                size = header.size
                if size < HEADER_SIZE or position + at + size > end:
                    raise CorruptLogError(f"{file.path}: no batch at byte {position + at}: length {header.length}")
                if at + size > len(data):
                    break
                batches.append((data[at : at + size], header))
                at += size
            if not batches and want >= size:
                raise CorruptLogError(f"{file.path}: no batch at byte {position}: cut off")
            want = READ_BYTES if batches else size
            position += at
            self.stats.bytes_read += at
            if batches:
                yield batches


def _last_of_producers(entries: Sequence[ProducerEntry]) -> Mapping[int, tuple[int | None, int]]:
    """Producer id → offset of its last data (None: no data) and its epoch."""
    return {
        entry.producer_id: (entry.batches[-1].last_offset if entry.batches else None, entry.epoch) for entry in entries
    }
