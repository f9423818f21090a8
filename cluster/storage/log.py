"""The log of one replica: segments in order, appended at the end, read anywhere, cut at the end.

Owns: the segments, offsets (`log_start_offset` ≤ `recovery_point` ≤ `log_end_offset`, but for a recovery
point that a moved start has overtaken), the tail in memory, leader epochs, producer states.

Invariants:

* `log_end_offset` is the offset of the next record; it moves only after a write that succeeded.
* `recovery_point`: everything below it was fsynced; moved only by an fsync that succeeded (B11).
* An append is one write of whole batches to one segment, all of it or nothing.
* The caller's bytes are never changed: a leader patches its own copy, a follower writes what came.
* After an I/O error `failed` is set: this log takes no append and gives no bytes any more (KAFKA-10778).

One thread, but for calls marked BLOCKS, which only read what the loop appends to.
What may fail: KafkaError (refusals), StorageError (the disk). Source: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..config import TopicConfig
from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer, Host
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..wire.batches import headers, validate
from .appending import fitting, follower_rows, leader_rows, stamped, unpinned
from .files import PARTITION_METADATA
from .leader_epochs import LeaderEpochs
from .producer_entry import BatchMetadata
from .producer_states import Plan, ProducerStates
from .recovery import replay_producers
from .results import AppendedBatch, AppendInfo, FetchData, Origin
from .segment import LogSegment
from .tail import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """What the loader found in a folder."""

    segments: list[LogSegment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset


class Log:
    """One replica's log; made by `loader.open_log`."""

    def __init__(
        self,
        host: Host,
        folder: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        opened: OpenedLog,
        *,
        topic_id: str,
        tail_bytes: int,
    ) -> None:
        self._host = host
        self._hit = host.failpoints.hit
        self._segments = opened.segments
        self._bases = [segment.base_offset for segment in opened.segments]
        self._tail = Tail(tail_bytes)
        self._closed = False
        self._cuts = 0  # truncations so far: a flush that began before one proves nothing
        self._unflushed_records = 0
        self._folder_synced = False  # partition.metadata and the folder's names
        self.folder = folder
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.epochs = opened.epochs
        self.producers = opened.producers
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.log_end_offset
        self.recovery_point = opened.recovery_point
        self.flushed_ms = host.clock.wall_ms()
        self.failed: StorageError | None = None
        self.high_watermark: Callable[[], Offset] = lambda: self.log_end_offset
        """Retention deletes nothing at or above it; replication puts its own here."""
        self.reconfigure(config)

    def reconfigure(self, config: TopicConfig) -> None:
        """Take the topic's settings; they hold from the next append on."""
        self.config = config
        self._segment_bytes = config.number("segment.bytes")
        self._segment_ms = config.number("segment.ms")
        self._message_bytes_max = config.number("max.message.bytes")
        self._flush_messages = config.number("flush.messages")
        self._log_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self._gaps_allowed = "compact" in config.text("cleanup.policy")

    @property
    def size(self) -> int:
        """Bytes of all segments' log files."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> Sequence[LogSegment]:
        """Oldest first; the last one is active. Never empty."""
        return self._segments

    # -- append

    def append_as_leader(
        self, records: Buffer, leader_epoch: LeaderEpoch, *, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Judge, give offsets to, and append what a producer (or our coordinator) sent.

        KafkaError: a refusal, nothing appended. A batch that was appended before is not appended
        again: the answer is the first append's, with `duplicate`. StorageError: the disk.
        """
        self._check_usable()
        from_client = origin is Origin.CLIENT
        batches = validate(records, max_bytes=self._message_bytes_max, from_client=from_client)
        if from_client:
            duplicate = self.producers.find_duplicate(batches)
            if duplicate is not None:
                return self._duplicate_info(duplicate)
        data = bytearray(records)
        append_time = -1
        if self._log_append_time:
            append_time = self._host.clock.wall_ms()
            batches = [stamped(data, placed, append_time) for placed in batches]
        rows = leader_rows(data, batches, self.log_end_offset, leader_epoch)
        planned = self.producers.plan(data, batches, [row.base_offset for row in rows], origin)
        if len(data) > self._segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{len(data)} bytes do not fit a segment of {self._segment_bytes}",
            )
        first = self.log_end_offset
        self._write(memoryview(data), rows, planned)
        return self._info(first, append_time, len(data))

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Append a leader's bytes as they are; a partial batch at their end is passed over.

        KafkaError(corrupt_message) for a bad CRC, StorageError where they do not continue this log:
        nothing is appended then.
        """
        self._check_usable()
        view = unpinned(records)
        batches = list(headers(view))
        rows = follower_rows(
            view,
            batches,
            end=self.log_end_offset,
            gaps_allowed=self._gaps_allowed,
            log=str(self.topic_partition),
        )
        first = self.log_end_offset
        size = 0
        start = 0
        while start < len(rows):
            stop = fitting(rows, start, self._segments[-1].size, self._segment_bytes)
            begin = rows[start].position
            end = rows[stop - 1].position + rows[stop - 1].size
            run = rows[start:stop]
            if begin:
                run = [row._replace(position=row.position - begin) for row in run]
            bases = [row.base_offset for row in run]
            planned = self.producers.plan(view, batches[start:stop], bases, Origin.REPLICATION)
            self._write(view[begin:end], run, planned)
            size += end - begin
            start = stop
        return self._info(first, -1, size)

    def _write(self, data: memoryview, rows: Sequence[AppendedBatch], planned: Plan) -> None:
        """One write: `rows` describe the whole batches that `data` is made of."""
        last_row = rows[-1]
        segment = self._segments[-1]
        try:
            if segment.should_roll(
                len(data),
                last_row.last_offset,
                last_row.max_timestamp,
                bytes_max=self._segment_bytes,
                age_ms=self._segment_ms,
                now=self._host.clock.wall_ms(),
            ):
                segment = self.roll(rows[0].base_offset)
            self._hit("log.before-append")
            for row in rows:
                if row.leader_epoch > self.epochs.latest():
                    self.epochs.assign(LeaderEpoch(row.leader_epoch), Offset(row.base_offset))
            segment.append(data, rows)
        except OSError as error:
            with contextlib.suppress(
                OSError
            ):  # the disk has refused already; the first error tells
                if segment.file.size() > segment.size:
                    segment.file.truncate(segment.size)
            raise self._fail("append to", error) from error
        before = self.log_end_offset
        self.log_end_offset = Offset(last_row.last_offset + 1)
        for row in rows:
            batch = data if row.size == len(data) else data[row.position : row.position + row.size]
            self._tail.append(row.base_offset, row.last_offset, batch)
        self.producers.commit(planned, self.log_end_offset)
        self._unflushed_records += self.log_end_offset - before
        if self._unflushed_records >= self._flush_messages:
            self.flush()

    def _info(self, first: Offset, append_time: int, size: int) -> AppendInfo:
        end = self.log_end_offset
        return AppendInfo(
            first, Offset(end - 1), append_time, self.log_start_offset, False, end - first, size
        )

    def _duplicate_info(self, batch: BatchMetadata) -> AppendInfo:
        return AppendInfo(
            Offset(batch.first_offset),
            Offset(batch.last_offset),
            batch.timestamp if self._log_append_time else -1,
            self.log_start_offset,
            True,
            batch.last_offset - batch.first_offset + 1,
            0,
        )

    # -- read

    def read(
        self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool
    ) -> FetchData:
        """Whole batches from the one that holds `offset`, based below `upper`.

        Up to `max_bytes`, or one larger batch when `at_least_one`. Empty at the end of the log and at
        `upper`. KafkaError(offset_out_of_range) below the start or above the end. Parts are not
        copied: they are the log's own.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: offset {offset} is not in "
                f"[{self.log_start_offset}, {self.log_end_offset}]",
            )
        if offset >= upper or offset == self.log_end_offset:
            return FetchData([], 0, offset)
        self._check_usable()
        found = self._tail.read(offset, max_bytes, upper, at_least_one=at_least_one)
        if found is not None:
            return found
        try:
            for index in range(bisect_right(self._bases, offset) - 1, len(self._segments)):
                segment = self._segments[index]
                found = segment.read(offset, max_bytes, upper, at_least_one=at_least_one)
                if found is not None:
                    return found
        except OSError as error:
            raise self._fail("read", error) from error
        return FetchData([], 0, offset)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. Time, offset and leader epoch of the first record at or after `timestamp_ms`."""
        start = self.log_start_offset
        for segment in list(self._segments):
            if segment.max_timestamp >= timestamp_ms:
                found = segment.find_timestamp(timestamp_ms, start)
                if found is not None:
                    return found
        return None

    def offset_of_max_timestamp(self) -> tuple[int, Offset, LeaderEpoch] | None:
        """BLOCKS. The same of the record with the largest timestamp (KIP-734); None when empty."""
        newest = max(self._segments, key=lambda segment: segment.max_timestamp)
        if newest.max_timestamp < 0:
            return None
        return newest.find_timestamp(newest.max_timestamp, self.log_start_offset)

    # -- roll, flush, close

    def roll(self, base_offset: Offset | int | None = None) -> LogSegment:
        """Close the active segment for appends and begin the next at the log's end (B6).

        The old one is flushed in the background, which moves the recovery point.
        """
        base = self.log_end_offset if base_offset is None else Offset(base_offset)
        active = self._segments[-1]
        if active.size == 0:
            return active
        active.become_inactive()
        segment = self._new_segment(base)
        self._segments.append(segment)
        self._bases.append(base)
        self.producers.take_snapshot()
        self._host.tasks.spawn(self._flush_rolled(base), name=f"log.flush {self.topic_partition}")
        return segment

    async def _flush_rolled(self, offset: Offset) -> None:
        with contextlib.suppress(StorageError):  # `failed` is set and logged; appends are refused
            await self._host.tasks.run_blocking(self.flush_up_to, offset)

    def flush(self) -> None:
        """BLOCKS. fsync everything appended so far; the recovery point moves to the log's end."""
        self.flush_up_to(self.log_end_offset)

    def flush_up_to(self, offset: Offset) -> None:
        """BLOCKS. fsync every segment with records below `offset` that may not be durable yet."""
        if offset <= self.recovery_point or self._closed or self.failed:
            return
        cuts = self._cuts
        unflushed = self._unflushed_records
        segments = list(self._segments)
        first = max(bisect_right([s.base_offset for s in segments], self.recovery_point) - 1, 0)
        try:
            for segment in segments[first:]:
                if segment.base_offset < offset:
                    segment.flush(indexes=segment is not segments[-1])
            self.epochs.flush()
            if not self._folder_synced:
                self._host.disk.sync_file(f"{self.folder}/{PARTITION_METADATA}")
                self._folder_synced = True
        except (OSError, ValueError) as error:
            if self._closed or cuts != self._cuts:
                return  # deleted or cut under the flush: there was nothing to keep
            raise self._fail("fsync", error) from error
        if cuts == self._cuts:
            self.recovery_point = max(self.recovery_point, offset)
            self._unflushed_records = max(self._unflushed_records - unflushed, 0)
            self.flushed_ms = self._host.clock.wall_ms()

    def close(self) -> None:
        """BLOCKS. Flush, write indexes and a producer snapshot, give every file back.

        StorageError when that failed: the stop is then not clean.
        """
        if self._closed:
            return
        try:
            if self.failed is not None:
                raise self.failed
            self._segments[-1].become_inactive()
            self.producers.take_snapshot()
            self.flush()
            self._segments[-1].flush(indexes=True)
        except OSError as error:
            raise self._fail("close", error) from error
        finally:
            self.abandon()

    def retire(self) -> None:
        """Take no more calls: the log is being deleted. Its files stay open for who reads them."""
        self._closed = True

    def abandon(self) -> None:
        """Give every file back as it is."""
        self._closed = True
        self._tail.clear()
        for segment in self._segments:
            segment.close()

    # -- cut

    def truncate_to(self, offset: Offset) -> None:
        """Cut off every batch that ends at or above `offset`; epochs and producers go with them.

        The log then ends at `offset`, or at the base of the batch that held it. Epochs that begin at
        or above the end go even when no record does: a leader that wrote nothing left one.
        """
        self._check_usable()
        if offset >= self.log_end_offset:
            self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._cuts += 1
        try:
            keep = bisect_right(self._bases, offset)
            self._discard(self._segments[keep:])
            del self._segments[keep:], self._bases[keep:]
            end = self._segments[-1].truncate_to(offset)
            self.log_start_offset = min(self.log_start_offset, end)
            self._cut_at(end)
            if self.producers.touches(end):
                self.producers.load(end, self.log_start_offset, self._host.clock.wall_ms())
                replay_producers(self._segments, self.producers, end)
            else:
                self.producers.remove_snapshots_above(end)
                self.producers.map_end = end
        except OSError as error:
            raise self._fail("truncate", error) from error

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Delete every record and every epoch; the log begins and ends at `offset`."""
        self._check_usable()
        self._cuts += 1
        try:
            self._discard(self._segments)
            segment = self._new_segment(offset)
            self._segments, self._bases = [segment], [offset]
            self.epochs.clear()
            self.producers.clear(offset)
            self.log_start_offset = offset
            self._cut_at(offset)
        except OSError as error:
            raise self._fail("truncate", error) from error

    def _cut_at(self, end: Offset) -> None:
        self.log_end_offset = end
        self.recovery_point = min(self.recovery_point, end)
        self._tail.truncate_to(end)
        self.epochs.truncate_from_end(end)

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Records below `offset` are gone for readers (DeleteRecords, retention, the leader's start)."""
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition}: log start {offset} above its end {self.log_end_offset}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        return True

    def delete_oldest(self, count: int) -> None:
        """Retention: drop the `count` oldest segments (never the active one), files a while later."""
        assert 0 < count < len(self._segments), f"{count} of {len(self._segments)} segments"
        self._check_usable()
        try:
            self.increment_log_start_offset(Offset(self._bases[count]))
            self._discard(self._segments[:count])
        except OSError as error:
            raise self._fail("delete segments of", error) from error
        del self._segments[:count], self._bases[:count]

    def _discard(self, segments: Sequence[LogSegment]) -> None:
        if not segments:
            return
        gone = list(segments)
        paths = [path for segment in gone for path in segment.mark_deleted()]
        delay_ms = self.config.number("file.delete.delay.ms")
        self._host.tasks.call_later(delay_ms, self._purge_soon, gone, paths)

    def _purge_soon(self, segments: Sequence[LogSegment], paths: Sequence[str]) -> None:
        self._host.tasks.spawn(self._purge(segments, paths), name="log.purge")

    async def _purge(self, segments: Sequence[LogSegment], paths: Sequence[str]) -> None:
        for segment in segments:
            segment.close()
        for path in paths:
            await self._host.tasks.run_blocking(self._host.disk.remove, path)

    # -- inside

    def _new_segment(self, base_offset: int) -> LogSegment:
        return LogSegment(
            self._host.disk,
            self.folder,
            base_offset,
            index_interval=self.config.number("index.interval.bytes"),
            index_bytes_max=self.config.number("segment.index.bytes"),
            created_ms=self._host.clock.wall_ms(),
        )

    def _check_usable(self) -> None:
        if self.failed is not None or self._closed:
            why = str(self.failed) if self.failed else "the log is closed"
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self.topic_partition}: {why}")

    def _fail(self, action: str, error: Exception) -> StorageError:
        """The disk refused: from now on this log refuses too."""
        failure = StorageError(
            f"could not {action} {self.folder}: {error}; its log is offline until the broker restarts"
        )
        if self.failed is None:
            self.failed = failure
            self._host.trace.log("error", str(failure), partition=str(self.topic_partition))
        return failure
