"""The log of one replica: segments in order, appended at the end, read anywhere, cut at the end.

Owns: the segments, offsets (`log_start_offset` ≤ `recovery_point` ≤ `log_end_offset`, but for a recovery
point that a moved start has overtaken), the tail in memory, leader epochs, producer states.

Invariants:

* `log_end_offset` is the offset of the next record; it moves only after a write that succeeded.
* `recovery_point`: everything below it was fsynced; moved only by an fsync that succeeded (B11).
* An append is one write of whole batches to one segment, all of it or nothing.
* The caller's bytes are never changed: a leader writes headers of its own, a follower what came.
* After an I/O error `failed` is set: this log takes no append and gives no bytes any more (KAFKA-10778).

One thread, but for calls marked BLOCKS, which only read what the loop appends to.
What may fail: KafkaError (refusals), StorageError (the disk). Source: Kafka's `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from ..config import TopicConfig
from ..errors import StorageError
from ..host.seam import Buffer, Host
from ..host.seam.failpoints import BEFORE_APPEND
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..wire.batch_header import LOG_APPEND_TIME, PlacedBatch, new_row
from ..wire.batches import headers, validate
from .appending import (
    duplicate_info,
    follower_rows,
    larger_than_a_segment,
    next_base,
    place,
    place_stamped,
    run_from,
    unpinned,
)
from .durability import Durability
from .indexes.sparse_index import IndexMaps
from .indexes.transaction_index import AbortedTxn
from .local_log import LocalLog, OpenedLog
from .log_availability import file_was_closed_under_thread
from .log_reads import ReadableLog
from .producers.producer_states import NOTHING, Plan
from .producers.replay import truncate_producers
from .required_keys import require_keys
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
        self.on_cut: Callable[[Offset], None] = lambda _end: None
        """Called with the log end offset after each truncation; the cleaner and the log folder set it (B8)."""
        self.reconfigure(config)
        self._check_borders()

    def reconfigure(self, config: TopicConfig) -> None:
        """Take the topic's settings; they hold from the next append on."""
        self.config = self._local.config = config
        self._segment_bytes = config.number("segment.bytes")
        self._segment_ms = config.number("segment.ms")
        self._message_bytes_max = config.number("max.message.bytes")
        self._flush_messages = config.number("flush.messages")
        self._log_append_time = config.text("message.timestamp.type") == "LogAppendTime"
        self._compacted = "compact" in config.text("cleanup.policy")
        if self._compacted:  # in time: it must leave the active segment in time then (KIP-354)
            self._segment_ms = min(self._segment_ms, config.number("max.compaction.lag.ms"))

    @property
    def recovery_point(self) -> Offset:
        """Everything below it was fsynced."""
        return self._durability.recovery_point

    def join(
        self,
        tails: TailBudget,
        flush_due: Callable[[Log], None],
        on_failure: Callable[[Log, StorageError], None],
    ) -> None:
        """Make it a log of a broker: it shares `tails`, `flush_due` makes its fsyncs, `on_failure` hears of errors."""
        self._tail.share(tails)
        self._flush_due = flush_due
        self._on_failure = lambda failure: on_failure(self, failure)

    # -- append

    def append_as_leader(
        self, records: Buffer, leader_epoch: LeaderEpoch, *, origin: Origin = _CLIENT
    ) -> AppendInfo:
        """Judge, give offsets to, and append what a producer (or our coordinator) sent.

        KafkaError: a refusal, nothing appended. A batch that was appended before is not appended
        again: the answer is the first append's, with `duplicate`. StorageError: the disk.
        """
        self.check_usable()
        from_client, log_time = origin is _CLIENT, self._log_append_time
        header = validate(records, max_bytes=self._message_bytes_max, from_client=from_client)
        size = header.size
        if size < len(records):
            records = memoryview(records)[:size]
        if header.producer_id >= 0 and from_client:
            duplicate = self.producers.find_duplicate(header)
            if duplicate is not None:
                return duplicate_info(duplicate, self.log_start_offset, stamped=log_time)
        if self._compacted:
            require_keys(self.topic_partition, records, header)
        first, time = self.log_end_offset, -1
        if log_time or header.attributes & LOG_APPEND_TIME:
            time = self._wall_ms() if log_time else -1
            parts, header = place_stamped(records, header, first, leader_epoch, time)
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
        return new_row(AppendInfo, (first, last, time, start, False, count, size))

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Append a leader's bytes as they are; a partial batch at their end is passed over.

        KafkaError(corrupt_message) for a bad CRC, StorageError where they do not continue this log:
        nothing is appended then.
        """
        self.check_usable()
        view = unpinned(records)
        batches = list(headers(view))
        first = self.log_end_offset
        rows = follower_rows(view, batches, end=first, log=self.topic_partition)
        start = size = 0
        while start < len(rows):
            run, size = run_from(rows, start, self._segments.active.size, self._segment_bytes)
            planned = self.producers.plan(
                view, batches[start : start + len(run)], None, Origin.REPLICATION
            )
            begin = rows[start].position
            self._write((view[begin:size],), size - begin, run, planned)
            start += len(run)
        last, start_offset = self.log_end_offset - 1, self.log_start_offset
        return AppendInfo(first, Offset(last), -1, start_offset, False, last - first + 1, size)

    def _write(
        self, parts: tuple[Buffer, ...], size: int, rows: Sequence[AppendedBatch], planned: Plan
    ) -> None:
        """One write: `rows` describe the whole batches in the `size` bytes of `parts`."""
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
        except OSError as error:
            raise self.fail("append to", error) from error
        before = self.log_end_offset
        self.log_end_offset = end = Offset(last_row.last_offset + 1)
        if len(rows) == 1:
            self._tail.append(last_row.base_offset, last_row.last_offset, size, parts)
        else:
            whole = memoryview(parts[0])
            for at, length, base, last, _, _ in rows:
                self._tail.append(base, last, length, (whole[at : at + length],))
        aborted = self.producers.commit(planned, end)
        if aborted:
            self._note_aborted(segment, aborted)
        due = self._flush_messages
        if end >= due and end - self.recovery_point >= due:
            self._durability.await_fsync_from(before)
            self._flush_due(self)

    def _note_aborted(self, segment: LogSegment, aborted: Sequence[AbortedTxn]) -> None:
        with self.refusals("append to the transaction index of"):
            for one in aborted:
                segment.aborted.append(one)

    # -- roll, flush, close

    def roll(self, reason: str = "asked", *, base_offset: Offset | None = None) -> LogSegment:
        """Seal the active segment and begin the next at the log's end (B6), `log.rolled`; an empty one stays.

        The old one is flushed in the background, which moves the recovery point.
        """
        base = self.log_end_offset if base_offset is None else base_offset
        assert base >= self.log_end_offset, f"{self.folder}: segment {base} would begin in another"
        with self.refusals("roll"):
            # where all is durable, and the next segment's name vouches for it, its indexes must be so before
            segment = self._local.roll(base, reason, durable=self.recovery_point >= base)
            if segment is None:
                return self._segments.active
            self.producers.map_end = base
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
        begun = self._durability.begin()
        upto = min(offset, self.log_end_offset)  # it may have been cut since it was asked
        if upto <= self.recovery_point or self.closed or self.failed:
            return
        try:
            self._local.flush(self.recovery_point, upto)
            self.epochs.flush()
            self.producers.flush()
        except (OSError, ValueError) as error:
            gone = self.closed or begun != self._durability.begin()
            if gone and file_was_closed_under_thread(error):
                return  # deleted or cut under the flush: there was nothing to keep
            raise self.fail("fsync", error) from error
        if self._durability.ended(begun, upto):
            self.flushed_ms = self._host.clock.wall_ms()

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
        """BLOCKS. Flush, write indexes and a producer snapshot, give every file back.

        StorageError when that failed: the stop is then not clean.
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
        """Take no more calls: the log is being deleted. Its files stay open for who reads them."""
        self.closed = True

    def abandon(self) -> None:
        """Give every file back as it is."""
        self.closed = True
        self._tail.clear()
        self._local.close()

    # -- cut

    def truncate_to(self, offset: Offset) -> None:
        """Cut off every batch that ends at or above `offset`; epochs and producers go with them.

        The log then ends at `offset`, or at the base of the batch that held it. Epochs that begin at
        or above the end go even when no record does: a leader that wrote nothing left one.
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
            self._cut_at(end)
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

    def _cut_at(self, end: Offset) -> None:
        assert end <= self.log_end_offset, f"{self.folder}: a truncation to {end} lengthens the log"
        self._set_end(end)

    def _set_end(self, end: Offset) -> None:
        self.log_end_offset = end
        # the cut itself is not durable: the next flush must reach the segment that was cut
        self._durability.cut(min(end, Offset(self._segments.active.base_offset)))
        self._tail.truncate_to(end)
        self.epochs.truncate_from_end(end)
        self._check_borders()
        self.on_cut(end)

    def _check_borders(self) -> None:
        """The invariants of the offsets, on the loop after each change that is rare."""
        end, active = self.log_end_offset, self._segments.active
        assert 0 <= self.log_start_offset <= end, f"{self.folder}: {self.log_start_offset} to {end}"
        assert self.recovery_point <= end, f"{self.folder}: {self.recovery_point} above {end}"
        assert active.base_offset <= end, f"{self.folder}: {active.base_offset} above {end}"

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Records below `offset` are gone for readers (DeleteRecords, retention, the leader's start)."""
        if offset > self.log_end_offset:
            raise self.out_of_range(offset)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        with self.refusals("move the start of"):
            self.epochs.truncate_from_start(offset)
        self._check_borders()
        return True

    def delete_oldest(self, count: int, reason: str = "retention") -> None:
        """Retention: drop the `count` oldest segments (never the active one), files a while later."""
        assert 0 < count < len(self._segments), f"{count} of {len(self._segments)} segments"
        self.increment_log_start_offset(Offset(self._segments.all[count].base_offset))
        self.remove_segments(self._segments.all[:count], reason)

    def remove_segments(self, segments: Sequence[LogSegment], reason: str) -> None:
        """Take these (not the active one) out now, `log.segments-deleted`; their files go later (B7)."""
        self.check_usable()
        with self.refusals("delete segments of"):
            self._local.remove(list(segments), reason)

    def replace_segments(self, new: LogSegment, old: Sequence[LogSegment]) -> None:
        """Compaction: from now on `new` is read where `old`, neighbours, were; files are the caller's."""
        self.check_usable()
        self._tail.clear()  # which may hold what is compacted away
        self._segments.replace(new, old)


def _do_nothing() -> None:
    """The `on_fsync_completed` of a log whose appends nothing waits for."""


def _flush_at_once(log: Log) -> None:
    """The flush of a log that belongs to no broker: the append itself makes it."""
    log.flush()
    log.advance_acknowledgeable_end()
