"""Reading a log: batches from an offset on, look-ups by timestamp, the last stable offset.

Owns: the log's borders, its segments, its tail in memory and its producer states, all of which `Log` changes. Nothing
here changes them.

Invariants: log start offset <= log end offset. `log_end_offset` is the offset of the next record. A read of a fetch
serves from the tail when the tail has the offset, else from one segment.

What may fail: KafkaError (offset out of range, log not usable), StorageError (the disk).
Source: Kafka's `UnifiedLog.read`, `fetchOffsetByTimestamp`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import LeaderEpoch, Offset, TopicPartition
from .file_regions import DataToSend, SegmentRead, T, read_to_send
from .indexes.transaction_index import AbortedTxn
from .local_log import LocalLog, OpenedLog
from .log_availability import LogAvailability
from .results import FetchData
from .segment import LogSegment
from .tail import Tail


class ReadableLog(LogAvailability):
    """What can be read of one replica's log."""

    def __init__(
        self, host: Host, topic_partition: TopicPartition, local: LocalLog, opened: OpenedLog, *, tail_bytes: int
    ) -> None:
        super().__init__(host, local.folder, topic_partition)
        self._local = local
        self._segments = local.segments
        self._tail = Tail(tail_bytes)
        self.producers = opened.producers
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.log_end_offset

    @property
    def size(self) -> int:
        """Bytes of all segments' log files."""
        return sum(segment.size for segment in self._segments.all)

    @property
    def segments(self) -> Sequence[LogSegment]:
        """Oldest first; the last one is active. Never empty."""
        return self._segments.all

    def read(self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool) -> FetchData:
        """Whole batches from the one that holds `offset`, based below `upper`.

        At most `max_bytes`, except that `at_least_one` allows one larger batch. Empty at the log end offset and at
        `upper`. KafkaError(offset_out_of_range) below the log start offset or above the log end offset. The parts are
        not copied: the caller must not change them.
        """
        return self._read(LogSegment.read, offset, max_bytes, upper, at_least_one=at_least_one)

    def read_to_send(
        self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool
    ) -> DataToSend | FetchData:
        """As `read`, for a link to send: what is not in memory may be a region of a file (B12)."""
        return self._read(read_to_send, offset, max_bytes, upper, at_least_one=at_least_one)

    def _read(
        self, read: SegmentRead[T], offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool
    ) -> T | FetchData:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self.out_of_range(offset)
        if offset >= upper or offset == self.log_end_offset:
            return FetchData([], 0, offset)
        self.check_usable()
        in_memory = self._tail.read(offset, max_bytes, upper, at_least_one=at_least_one)
        if in_memory is not None:
            return in_memory
        with self.refusals("read"):
            return self._local.read(read, offset, max_bytes, upper, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. Time, offset and leader epoch of the first record at or after `timestamp_ms`."""
        with self.refusals("read", beside=True):
            return self._local.offset_for_timestamp(timestamp_ms, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The same for the record with the largest timestamp (KIP-734); None when the log is empty."""
        with self.refusals("read", beside=True):
            return self._local.offset_of_max_timestamp(self.log_start_offset)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """First offset that read_committed consumers may not read (F5); never below the log start offset."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        stable = high_watermark if unstable is None else max(unstable, self.log_start_offset)
        return min(stable, high_watermark)

    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTxn]:
        """The aborted transactions with records in [start, upper), by the offset of their marker; OSError: the disk."""
        return self._local.aborted_transactions(start, upper)

    def aborted_within_read(self, start: Offset, first: Offset, upper: Offset) -> list[AbortedTxn]:
        """The same for the batches that a read from `start` returned, of which `first` is the first base offset.

        A read from memory may go beyond a segment. A read from disk ends with the segment of `first`, which is a later
        segment than that of `start` when compaction removed everything between the two.
        """
        with self.refusals("read the transaction index of"):
            if not self._tail.holds(start):
                upper = Offset(self._local.segment_end(max(start, first), upper))
            return self._local.aborted_transactions(start, upper)

    def out_of_range(self, offset: int) -> KafkaError:
        """The refusal of an offset that this log does not have."""
        there = f"[{self.log_start_offset}, {self.log_end_offset}]"
        what = f"{self.topic_partition}: offset {offset} is not in {there}"
        return KafkaError(ErrorCode.offset_out_of_range, what)
