"""The log of one replica: appends, rolls, flushes, truncations. Reading is in `log_reads.py`.

Owns: the segments, the offsets (`log_start_offset` <= `recovery_point` <= `log_end_offset`, except that the log start
may have been raised above the recovery point), the tail in memory, the leader epochs, the producer states.

Invariants:

* `log_end_offset` is the offset of the next record; it advances only after a write that succeeded.
* `recovery_point`: every record below it is durable; only an fsync that succeeded raises it (B11).
* An append is one write of whole batches to one segment, complete or not at all.
* The caller's bytes are never changed: a leader writes new headers, a follower writes the leader's bytes.
* After an I/O error `failed` is set: this log refuses every append and read (`log_availability.py`).

All calls are on the loop, except those marked BLOCKS, which only read what the loop appends to.
What may fail: KafkaError (refusals), StorageError (the disk). Source: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ..config import TopicConfig
from ..errors import StorageError
from ..host.seam import Buffer, Host
from ..host.seam.failpoints import (
    AFTER_ROLL,
    AFTER_TRUNCATION,
    BEFORE_APPEND,
    BEFORE_ROLL,
    BEFORE_SEGMENT_REMOVAL,
    passes,
)
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..wire.batch_header import LOG_APPEND_TIME, PlacedBatch, new_row
from ..wire.batches import HEADER_SIZE, headers, validate
from .appending import (
    EPOCH_MOST,
    duplicate_info,
    follower_rows,
    larger_than_a_segment,
    next_base,
    place,
    place_stamped,
    run_from,
    unpinned,
    up_to_epoch,
)
from .durability import Durability
from .indexes.sparse_index import IndexMaps
from .indexes.transaction_index import AbortedTxn
from .local_log import LocalLog, OpenedLog
from .log_availability import file_was_closed_under_thread
from .log_reads import ReadableLog
from .producers.producer_states import NOTHING, Plan
from .producers.replay import truncate_producers
from .record_checks import RecordChecks
from .results import AppendedBatch, AppendInfo, Origin
from .segment import LogSegment
from .tail import TailBudget

_CLIENT = Origin.CLIENT


class Log(ReadableLog):
    """The log of one replica; `opening.loader.open_log` makes it."""

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
        maps: IndexMaps,
    ) -> None:
        local = LocalLog(host, folder, topic_partition, config, opened.segments, maps)
        super().__init__(host, topic_partition, local, opened, tail_bytes=tail_bytes)
        self._wall_ms = host.clock.wall_ms
        self._hit = host.failpoints.hit
        self.discard = local.discard  # the cleaner and recovery replace segments with these two
        self.open_segment = local.open_segment
        self._durability = Durability(opened.recovery_point)
        self._flush_due: Callable[[Log], None] = _flush_at_once
        self.topic_id = topic_id
        self.epochs = opened.epochs
        self.flushed_ms = host.clock.wall_ms()
        self.on_fsync_completed: Callable[[], None] = _do_nothing
        """Called on the loop after an fsync that appends waited for; replication sets it."""
        self.high_watermark: Callable[[], Offset] = lambda: self.log_end_offset
        """Retention deletes no record at or above the returned offset; replication sets it."""
        self.on_start_moved: Callable[[], None] = lambda: None
        """Called when the log start offset was raised; replication sets it."""
        self.on_cut: Callable[[Offset], None] = lambda _end: None
        """Called with the log end offset after each truncation; the cleaner and the log folder set it (B8)."""
        self.reconfigure(config)
        self._check_borders()

    def reconfigure(self, config: TopicConfig) -> None:
        """Use the topic's settings from the next append on."""
        self.config = self._local.config = config
        self._segment_bytes = config.segment_bytes
        self._segment_ms = config.number("segment.ms")
        self._message_bytes_max = config.number("max.message.bytes")
        self._flush_messages = self.messages_before_fsync()
        self._log_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self._record_checks = RecordChecks(self.topic_partition, config)
        if "compact" in config.text(
            "cleanup.policy"
        ):  # the cleaner skips the active segment, so it must roll in time (KIP-354)
            self._segment_ms = min(self._segment_ms, config.number("max.compaction.lag.ms"))

    def messages_before_fsync(self) -> int:
        """`flush.messages`: with so many records not durable, an fsync is due before any of them is acknowledged."""
        return self.config.number("flush.messages")

    @property
    def recovery_point(self) -> Offset:
        """Every record below it is durable."""
        return self._durability.recovery_point

    def join(
        self, tails: TailBudget, flush_due: Callable[[Log], None], on_failure: Callable[[Log, StorageError], None]
    ) -> None:
        """A log of a broker: it shares `tails`, `flush_due` makes its fsyncs, `on_failure` receives I/O errors."""
        self._tail.share(tails)
        self._flush_due = flush_due
        self._on_failure = lambda failure: on_failure(self, failure)

    # -- append

    def append_as_leader(self, records: Buffer, leader_epoch: LeaderEpoch, *, origin: Origin = _CLIENT) -> AppendInfo:
        """Validate a batch of a producer (or of this broker's coordinator), assign its offsets, and append it.

        KafkaError: the batch is refused, nothing is appended. A batch that was appended before is not appended again:
        the result is that of its first append, with `duplicate` set. StorageError: the disk.
        """
        self.check_usable()
        from_client, log_time = origin is _CLIENT, self._log_append_time
        header = validate(records, max_bytes=self._message_bytes_max, from_client=from_client)
        size = header.size
        if size < len(records):
            records = memoryview(records)[:size]
        highest = header.max_timestamp
        if from_client:
            highest = self._record_checks.check(records, header, self._wall_ms())
            duplicate = self.producers.find_duplicate(header) if header.producer_id >= 0 else None
            if duplicate is not None:
                return duplicate_info(duplicate, self.log_start_offset)
        first, time, stored = self.log_end_offset, -1, b""
        attributes = header.attributes & ~LOG_APPEND_TIME
        if log_time:
            time = self._wall_ms()
            stamp = attributes | LOG_APPEND_TIME, time
            parts, header = place_stamped(records, first, leader_epoch, *stamp)
        elif attributes != header.attributes or highest != header.max_timestamp:
            stamp = attributes, highest
            parts, header = place_stamped(records, first, leader_epoch, *stamp)
            stored = bytes(parts[0][:HEADER_SIZE])
        else:
            parts = place(records, header, first, leader_epoch)
        planned = NOTHING
        if header.producer_id >= 0:
            placed = PlacedBatch(0, size, header)
            planned = self.producers.plan(records, (placed,), first, origin)
        if size > self._segment_bytes:
            raise larger_than_a_segment(size, self._segment_bytes)
        last = first + header.last_offset_delta
        row = (0, size, first, last, header.max_timestamp, leader_epoch)
        self._write(parts, size, (new_row(AppendedBatch, row),), planned)
        start, count = self.log_start_offset, last - first + 1
        return new_row(AppendInfo, (first, last, time, start, False, count, size, stored))

    def append_as_follower(self, records: Buffer, leader_epoch: int = EPOCH_MOST) -> AppendInfo:
        """Append a leader's batches unchanged; a partial batch at their end is ignored.

        So are batches of a later epoch than `leader_epoch`, under which they were fetched, and what is behind them: a
        file region that waits to be sent may get the batches of the next leader meanwhile (KAFKA-18723).
        KafkaError(corrupt_message) for a wrong CRC, StorageError when the batches do not continue this log; nothing is
        appended then.
        """
        self.check_usable()
        view = unpinned(records)
        batches = up_to_epoch(list(headers(view)), leader_epoch)
        start_offset = self.log_start_offset
        if self._begins_within(batches):
            self.truncate_fully_and_start_at(Offset(batches[0][2].base_offset))
        first = self.log_end_offset
        rows = follower_rows(view, batches, end=first, log=self.topic_partition)
        start = size = 0
        while start < len(rows):
            run, size = run_from(rows, start, self._segments.active.size, self._segment_bytes)
            planned = self.producers.plan(view, batches[start : start + len(run)], None, Origin.REPLICATION)
            begin = rows[start].position
            self._write((view[begin:size],), size - begin, run, planned)
            start += len(run)
        if start_offset > self.log_start_offset:
            self.increment_log_start_offset(start_offset)
        last, start_offset = self.log_end_offset - 1, self.log_start_offset
        return AppendInfo(first, Offset(last), -1, start_offset, False, last - first + 1, size)

    def _begins_within(self, batches: Sequence[PlacedBatch]) -> bool:
        """Whether this log is empty, and its end lies within the leader's first batch.

        The leader's log start offset then lies there, after DeleteRecords (Kafka: UnexpectedAppendOffsetException).
        """
        if not batches or self.log_start_offset != self.log_end_offset:
            return False
        header = batches[0][2]
        return header.base_offset < self.log_end_offset <= header.last_offset

    def _write(self, parts: tuple[Buffer, ...], size: int, rows: Sequence[AppendedBatch], planned: Plan) -> None:
        """Append the `size` bytes of `parts` in one write; `rows` describe the batches in them."""
        last_row = rows[-1]
        segment = self._segments.active
        try:
            limit, age = self._segment_bytes, self._segment_ms
            reason = segment.roll_reason(size, last_row, limit, age, self._wall_ms)
            if reason:
                segment = self.roll(reason, base_offset=next_base(rows, self.log_end_offset))
            self._hit(BEFORE_APPEND)
            assert rows[0].base_offset >= self.log_end_offset, f"{self.folder}: {rows[0]} overlaps"
            for row in rows:
                if row.leader_epoch > self.epochs.latest():
                    self.epochs.assign(LeaderEpoch(row.leader_epoch), Offset(row.base_offset))
            segment.append(parts, size, rows)
            before, end = self.log_end_offset, Offset(last_row.last_offset + 1)
            self.finish_append(segment, parts, rows, planned, end)
        except OSError as error:
            raise self.fail("append to", error) from error
        except MemoryError as error:
            # the file may have a batch that the log end does not count: the next one would get the same offset
            self._host.tasks.out_of_memory(error)
        due = self._flush_messages
        if end >= due and end - self.recovery_point >= due:
            self._durability.await_fsync_from(before)
            self._flush_due(self)

    def finish_append(
        self, segment: LogSegment, parts: tuple[Buffer, ...], rows: Sequence[AppendedBatch], planned: Plan, end: Offset
    ) -> None:
        """Take in what was written: the log end first, the transaction index last, because it may fail (KAFKA-7866)."""
        self.log_end_offset = end
        self.extend_tail(parts, rows)
        aborted = self.producers.commit(planned, end)
        if aborted:
            self.note_aborted(segment, aborted)

    def extend_tail(self, parts: tuple[Buffer, ...], rows: Sequence[AppendedBatch]) -> None:
        """Add the batches that were written to the tail in memory."""
        if len(rows) == 1:
            _, size, base, last, _, _ = rows[0]
            self._tail.append(base, last, size, parts)
        else:
            whole = memoryview(parts[0])
            for at, length, base, last, _, _ in rows:
                self._tail.append(base, last, length, (whole[at : at + length],))

    def note_aborted(self, segment: LogSegment, aborted: Sequence[AbortedTxn]) -> None:
        """Add transactions whose marker was written to the transaction index of its segment; StorageError: the disk."""
        with self.refusals("append to the transaction index of"):
            for transaction in aborted:
                segment.aborted.append(transaction)

    # -- roll, flush, close

    def roll(self, reason: str = "asked", *, base_offset: Offset | None = None) -> LogSegment:
        """Close the active segment and start the next at the log end offset (B6); an empty active segment stays.

        The old segment is flushed in the background, which raises the recovery point. Traced as `log.rolled`.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        assert base >= self.log_end_offset, f"{self.folder}: segment {base} would begin in another"
        with self.refusals("roll"):
            # When all records are durable, the next segment's name guarantees it at recovery: then the indexes of
            # the old segment must be durable before that name exists.
            self._passes(BEFORE_ROLL)
            segment = self._local.roll(base, reason, durable=self.recovery_point >= base)
            if segment is None:
                return self._segments.active
            self.producers.map_end = base
            self.producers.take_snapshot()
        self._passes(AFTER_ROLL)
        self._host.tasks.spawn(self._flush_rolled(base), name=f"log.flush {self.topic_partition}")
        return segment

    def _passes(self, name: str) -> None:
        passes(self._host.failpoints, self._host.trace, name, self.topic_partition)

    async def _flush_rolled(self, offset: Offset) -> None:
        with contextlib.suppress(StorageError):  # `failed` is set and logged; appends are refused
            await self._host.tasks.run_blocking(self.flush_up_to, offset)

    def flush(self) -> None:
        """BLOCKS. fsync everything that was appended; the recovery point becomes the log end offset."""
        self.flush_up_to(self.log_end_offset)

    def flush_up_to(self, offset: Offset) -> None:
        """BLOCKS. fsync every segment with records below `offset` that may not be durable yet."""
        begun = self._durability.begin()
        upto = min(offset, self.log_end_offset)  # the log may have been truncated since the request
        if upto <= self.recovery_point or self.closed or self.failed:
            return
        try:
            self._local.flush(self.recovery_point, upto)
            self.epochs.flush()
            self.producers.flush()
        except (OSError, ValueError) as error:
            gone = self.closed or begun != self._durability.begin()
            if gone and file_was_closed_under_thread(error):
                return  # deleted or truncated during the flush: nothing had to be kept
            raise self.fail("fsync", error) from error
        if self._durability.ended(begun, upto):
            self.flushed_ms = self._host.clock.wall_ms()

    def flush_what_is_due(self) -> None:
        """BLOCKS. fsync what `flush.messages` would have made durable before an acknowledgement; StorageError.

        For a log that was opened after a crash: its last records may be in no more than the memory of the machine.
        """
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.flush()

    @property
    def acknowledgeable_end(self) -> Offset:
        """First offset that must not be acknowledged yet (B11).

        The log end offset, or lower while `flush.messages` waits for an fsync.
        """
        return self._durability.acknowledgeable_end(self.log_end_offset)

    @property
    def awaits_fsync(self) -> bool:
        """True while records are not acknowledgeable before an fsync; False for a log that is closed or has failed."""
        return self._durability.awaits_fsync and self.failed is None and not self.closed

    def advance_acknowledgeable_end(self) -> bool:
        """Move `acknowledgeable_end` to what is durable; True when no further fsync is due. On the loop only."""
        if self.failed is not None or self.closed:
            return True
        return self._durability.advance(self.log_end_offset, self._flush_messages)

    def close(self) -> None:
        """BLOCKS. Flush, write the indexes and a producer snapshot, close every file.

        StorageError when that failed: the shutdown is then not clean.
        """
        if self.closed:
            return
        try:
            if self.failed is not None:
                raise self.failed
            with self.refusals("close"):
                self._segments.active.become_inactive()
                self.producers.take_snapshot()
                self.flush()
                self._segments.active.flush(indexes=True)
                self.producers.flush()
                self._local.sync_names()
        finally:
            self.abandon()

    def retire(self) -> None:
        """Refuse all calls from now on: the log is being deleted. Its files stay open for regions in flight."""
        self.closed = True

    def abandon(self) -> None:
        """Close every file without a flush."""
        self.closed = True
        self._tail.clear()
        self._local.close()

    # -- truncate and delete

    def truncate_to(self, offset: Offset) -> None:
        """Remove every batch that ends at or above `offset`, with their leader epochs and producer states.

        The log then ends at `offset`, or at the base offset of the batch that had it. Epochs that start at or above
        the end are removed even when no record is: a leader that wrote no record leaves such an epoch.
        """
        self.check_usable()
        if offset >= self.log_end_offset:
            with self.refusals("truncate"):
                self.epochs.truncate_from_end(self.log_end_offset)
            return
        if offset < self._segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._durability.cut(offset)
        with self.refusals("truncate"):
            end = self._local.truncate_to(offset)
            self.log_start_offset = min(self.log_start_offset, end)
            self._truncated_to(end)
            now, start = self._host.clock.wall_ms(), self.log_start_offset
            truncate_producers(self._segments.all, self.producers, end, start, now)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Delete every record and every epoch; the log begins and ends at `offset`."""
        self.check_usable()
        self._durability.cut(offset)
        with self.refusals("truncate"):
            self._local.start_over(offset)
            self.epochs.clear()
            self.producers.clear(offset)
            self.log_start_offset = offset
            self._set_end(offset)

    def _truncated_to(self, end: Offset) -> None:
        assert end <= self.log_end_offset, f"{self.folder}: a truncation to {end} lengthens the log"
        self._set_end(end)

    def _set_end(self, end: Offset) -> None:
        self.log_end_offset = end
        # the truncation itself is not durable: the next flush must include the truncated segment
        self._durability.cut(min(end, Offset(self._segments.active.base_offset)))
        self._tail.truncate_to(end)
        self.epochs.truncate_from_end(end)
        self._check_borders()
        self._passes(AFTER_TRUNCATION)
        self.on_cut(end)

    def _check_borders(self) -> None:
        """The invariants of the offsets, on the loop after each change that is rare."""
        end, active = self.log_end_offset, self._segments.active
        assert 0 <= self.log_start_offset <= end, f"{self.folder}: {self.log_start_offset} to {end}"
        assert self.recovery_point <= end, f"{self.folder}: {self.recovery_point} above {end}"
        assert active.base_offset <= end, f"{self.folder}: {active.base_offset} above {end}"

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Raise the log start offset (DeleteRecords, retention, the leader's log start); False: no change."""
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        with self.refusals("move the start of"):
            self.epochs.truncate_from_start(offset)
        self._check_borders()
        self.on_start_moved()
        return True

    def delete_oldest(self, count: int, reason: str = "retention") -> None:
        """Retention: remove the `count` oldest segments, never the active one; their files are deleted later."""
        assert 0 < count < len(self._segments), f"{count} of {len(self._segments)} segments"
        self.increment_log_start_offset(Offset(self._segments.all[count].base_offset))
        self.remove_segments(self._segments.all[:count], reason)

    def remove_segments(self, segments: Sequence[LogSegment], reason: str) -> None:
        """Remove segments (not the active one) now, `log.segments-deleted`; their files are deleted later (B7)."""
        self.check_usable()
        self._passes(BEFORE_SEGMENT_REMOVAL)
        with self.refusals("delete segments of"):
            self._local.remove(list(segments), reason)

    def replace_segments(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Compaction: replace the neighbours `old` by `new` in memory; the caller renames the files."""
        self.check_usable()
        self._tail.clear()  # it may hold records that compaction removed
        self._segments.replace(new, old)


def _do_nothing() -> None:
    """The `on_fsync_completed` of a log whose appends nothing waits for."""


def _flush_at_once(log: Log) -> None:
    """The flush of a log that belongs to no broker: the append itself makes it."""
    log.flush()
    log.advance_acknowledgeable_end()
