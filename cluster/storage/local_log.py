"""The segments of one log and their files: rolling, flushing, truncating, deleting (Kafka's `LocalLog`).

Owns: the segments (`segments`) and their files. Producer states, leader epochs and watermarks are `Log`'s.
Only the loop changes them; calls marked BLOCKS read on a thread. What may fail: OSError.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ..config import TopicConfig
from ..events.logs import LogRolled, SegmentsDeleted
from ..host.seam import Host
from ..ids import LeaderEpoch, Offset, TopicPartition
from .file_regions import SegmentRead, T
from .files import PARTITION_METADATA
from .indexes.sparse_index import IndexMaps
from .indexes.transaction_index import AbortedTxn
from .leader_epochs import LeaderEpochs
from .log_segments import LogSegments
from .producers.producer_states import ProducerStates
from .record_checks import RECORD_BYTES_MAX
from .results import FetchData
from .segment import LogSegment
from .segment_options import segment_options
from .timestamp_search import find_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """The content of a log folder after loading and recovery."""

    segments: list[LogSegment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset

    def __post_init__(self) -> None:
        assert self.segments, "the loader creates a segment for an empty log"
        start, end = self.log_start_offset, self.log_end_offset
        assert self.segments[0].base_offset <= start <= end, f"log start {start}, end {end}"
        assert self.recovery_point <= end, f"recovery point {self.recovery_point}, end {end}"
        assert self.epochs.latest_start() < end or not self.epochs.entries()


class LocalLog:
    """Segments on disk."""

    __slots__ = ("_host", "_maps", "_names", "_names_synced", "_topic_partition", "config", "folder", "segments")

    def __init__(
        self,
        host: Host,
        folder: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        segments: Iterable[LogSegment],
        maps: IndexMaps,
    ) -> None:
        self._host = host
        self._maps = maps
        self._topic_partition = topic_partition
        self.folder = folder
        self.config = config
        self.segments = LogSegments(segments)
        self._names = 1  # how many times files were created
        self._names_synced = 0

    # -- look up

    def read(
        self, read: SegmentRead[T], offset: int, max_bytes: int, upper: int, *, at_least_one: bool
    ) -> T | FetchData:
        """Whole batches from the one that holds `offset`, based below `upper`; empty where there is none.

        `read` is `LogSegment.read`, or `file_regions.read_to_send`.
        """
        segments = self.segments.all
        for index in range(max(self.segments.floor(offset), 0), len(segments)):
            found = read(segments[index], offset, max_bytes, upper, at_least_one=at_least_one)
            if found is not None:
                return found
        return FetchData([], 0, Offset(offset))

    def offset_for_timestamp(self, timestamp_ms: int, start: int) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The first record at or after both: its time, offset and leader epoch."""
        for segment in self.segments.from_time(timestamp_ms):
            if segment.max_timestamp >= timestamp_ms:
                found = find_timestamp(segment, timestamp_ms, start, self.config.number(RECORD_BYTES_MAX))
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self, start: int) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The same of the record with the largest timestamp; None when there is none."""
        newest = max(list(self.segments.all), key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        return find_timestamp(newest, newest.max_timestamp, start, self.config.number(RECORD_BYTES_MAX))

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [start, upper), by the offset of their marker (F5)."""
        found: list[AbortedTxn] = []
        segments = self.segments.all
        for index in range(max(self.segments.floor(start), 0), len(segments)):
            more, complete = segments[index].aborted.collect(start, upper)
            found += more
            if complete:
                break
        return found

    def segment_end(self, offset: int, upper: int) -> int:
        """The end offset of the segment with `offset`, or `upper` if that is lower."""
        segments = self.segments.all
        following = max(self.segments.floor(offset), 0) + 1
        return min(upper, segments[following].base_offset) if following < len(segments) else upper

    # -- roll, flush, close

    def roll(self, base_offset: Offset, reason: str, *, durable: bool) -> LogSegment | None:
        """Close the active segment and start the next (B6); None when the active segment is empty and starts there.

        With `durable` the closed segment is fsynced before, indexes included; BLOCKS then.
        """
        active = self.segments.active
        if active.size == 0 and active.base_offset >= base_offset:
            return None
        active.become_inactive()
        if durable:
            active.flush(indexes=True)
        segment = self._new_segment(base_offset)
        self._names += 1
        self.segments.add(segment)
        topic, partition = self._topic_partition
        self._host.trace.emit(LogRolled(topic=topic, partition=partition, base_offset=base_offset, reason=reason))
        return segment

    def flush(self, start: int, end: int) -> None:
        """BLOCKS. fsync the segments with records in [start, end), the indexes of closed segments, and new names."""
        segments = list(self.segments.all)
        bases = [segment.base_offset for segment in segments]
        for segment in segments[max(bisect_right(bases, start) - 1, 0) :]:
            if segment.base_offset < end:
                segment.flush(indexes=segment is not segments[-1])
        self.sync_names()

    def sync_names(self) -> None:
        """BLOCKS. fsync `partition.metadata` and the names of all files, if files were created since the last time."""
        names = self._names  # read before: a file that is created meanwhile needs the next call
        if names > self._names_synced:
            self._host.disk.sync_file(f"{self.folder}/{PARTITION_METADATA}")
            self._host.disk.sync_file(self.folder)
            self._names_synced = names

    def close(self) -> None:
        """Close every file without a flush."""
        for segment in self.segments.all:
            segment.close()

    # -- truncate and delete

    def truncate_to(self, offset: int) -> Offset:
        """Remove every batch that ends at or above `offset`, which lies in a segment; returns the new end offset."""
        gone = self.segments.all[self.segments.floor(offset) + 1 :]
        # the last segment first: a crash in the middle leaves no gap
        self.discard(gone[::-1])
        self.segments.remove(gone)
        if gone:
            # a power loss that kept the truncation below and not these renames would leave a gap
            self._host.disk.sync_file(self.folder)
        end = self.segments.active.truncate_to(offset)
        assert self.segments.active.base_offset <= end <= offset, f"{self.folder}: ends at {end}"
        return end

    def start_over(self, offset: int) -> None:
        """Delete everything; one empty segment starts at `offset`."""
        self.discard(self.segments.all[::-1])
        self.segments.start_over(self._new_segment(offset))
        self._host.disk.sync_file(self.folder)

    def remove(self, segments: Sequence[LogSegment], reason: str) -> None:
        """Remove the oldest segments (not the active one) now; their files are deleted later (B7)."""
        self.discard(segments)
        self.segments.remove(segments)
        bases = [segment.base_offset for segment in segments]
        assert bases and bases[-1] < self.segments.active.base_offset, f"{bases} are not the oldest"
        topic, partition = self._topic_partition
        self._host.trace.emit(
            SegmentsDeleted(
                topic=topic,
                partition=partition,
                base_offsets=tuple(bases),
                reason=reason,
                end=self.segments.all[0].base_offset,
                bytes_left=sum(segment.size for segment in self.segments.all),
                retention_ms=self.config.number("retention.ms"),
                retention_bytes=self.config.number("retention.bytes"),
            )
        )

    def discard(
        self,
        segments: Sequence[LogSegment],
        *,
        keep_snapshots: Collection[int] = (),
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        """Rename the files of these to `.deleted` now, remove them after `file.delete.delay.ms`."""
        gone = list(segments)
        if not gone:
            return
        paths = [
            path
            for segment in gone
            for path in segment.mark_deleted(keep_snapshots=keep_snapshots, before_each=before_each)
        ]
        delay_ms = self.config.number("file.delete.delay.ms")
        self._host.tasks.call_later(delay_ms, self._purge_soon, gone, paths)

    def _purge_soon(self, segments: Sequence[LogSegment], paths: Sequence[str]) -> None:
        self._host.tasks.spawn(self._purge(segments, paths), name="log.purge")

    async def _purge(self, segments: Sequence[LogSegment], paths: Sequence[str]) -> None:
        for segment in segments:
            segment.close()
        for path in paths:
            await self._host.tasks.run_blocking(self._host.disk.remove, path)

    # -- new segments

    def open_segment(self, base_offset: int, suffix: str) -> LogSegment:
        """Open a segment that is not part of this log (yet)."""
        options = segment_options(self.config, self._host, self._maps)
        return LogSegment(self._host.disk, self.folder, base_offset, options, suffix=suffix)

    def _new_segment(self, base_offset: int) -> LogSegment:
        segment = self.open_segment(base_offset, "")
        if segment.size:  # a leftover file
            segment.file.truncate(0)
            segment.size = 0
        segment.reset_indexes()
        return segment
