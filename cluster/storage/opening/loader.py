"""Opening a log folder (B9): sweep leftovers, open segments, check indexes, recover, make a `Log`.

Order, as in Kafka's loader:

1. `.deleted` and `.cleaned` files are removed, and `.swap` files at or above the smallest `.cleaned` (their cleaning
   did not finish). Other swaps are completed: `.swap` replaces the old segments.
2. Index files without a log file are removed. Segments are opened in order of base offset, and their indexes checked; a
   segment with a missing or broken index is re-read. A segment that spans more than 2^31 offsets is split, and opening
   begins again.
3. After an unclean shutdown every segment from the one with the recovery point on is re-read: recovery checks the CRCs,
   truncates at the first bad batch, deletes the segments after it, and rebuilds the indexes, the leader epochs and the
   producer states from the batches.
4. A log that ends below its log start offset is emptied and starts there.
5. Leader epochs outside the log are removed; they are rebuilt where their checkpoint is broken or lost.
6. Stray producer snapshots are removed; producer states come from the newest snapshot and a replay.

What a bad batch invalidates is removed before that batch, last segment first: after a crash in the middle recovery
finds the same bad batch again, never a gap. The event `log.recovered` reports what was truncated where and why (B10).
What may fail: OSError, CorruptLogError (a file without which recovery cannot work).
Source: Kafka's `LogLoader`, KIP-98, KIP-101.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...config import TopicConfig
from ...errors import CorruptLogError
from ...events.logs import LogRecovered
from ...host.seam import Host
from ...host.seam.failpoints import (
    AFTER_PRODUCERS,
    AFTER_SEGMENT,
    BEFORE_CUT,
    BEFORE_EPOCHS,
    BEFORE_INDEX_REBUILD,
    BEFORE_LATER_SEGMENT,
    BEFORE_PRODUCERS,
    BEFORE_SEGMENT,
    BEFORE_SPLIT,
    BEFORE_START_OVER,
    BEFORE_STRAY_INDEX,
)
from ...ids import Offset, TopicPartition
from ...wire.batches import HEADER_SIZE, header_at
from ..files import INDEXES, LEADER_EPOCHS, LOG, offset_of
from ..indexes.sparse_index import IndexMaps
from ..leader_epochs import LeaderEpochs
from ..local_log import OpenedLog
from ..log import Log
from ..producers.producer_states import ProducerStates
from ..producers.replay import replay_producers
from ..segment import LogSegment
from ..segment_options import segment_options
from .recovery import OffsetOverflowError, rebuild_epochs, recover_segment
from .segment_end import load_end
from .splitting import split_segment
from .sweeping import sweep

START = Offset(0)
OFFSET_END = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the files of the log folder do not contain."""

    config: TopicConfig
    topic_id: str = ""
    log_start_offset: Offset = START
    recovery_point: Offset = START
    clean: bool = True
    """The last shutdown was clean: every log was flushed and closed."""
    is_new: bool = False
    """The log of a new replica, which is no recovery: it reaches no failpoint."""
    tail_bytes: int = 4 * 1024 * 1024
    producer_expiration_ms: int = 86_400_000
    maps: IndexMaps = field(default_factory=IndexMaps)
    """Shared by all logs of a broker."""


@dataclass(slots=True, kw_only=True)
class _Findings:
    """The results of the recovery of one log."""

    segments_read: int = 0
    removed: list[int] = field(default_factory=list[int])
    """Base offsets."""
    truncated_bytes: int = 0
    reasons: list[str] = field(default_factory=list[str])


def open_log(host: Host, folder: str, topic_partition: TopicPartition, options: LogOptions) -> Log:
    """BLOCKS. The log in `folder`, which exists; an empty folder gives an empty log."""
    while True:
        loader = LogLoader(host, folder, topic_partition, options)
        try:
            return loader.load()
        except OffsetOverflowError as overflow:
            host.trace.log("warning", f"{overflow}; splitting the segment")
            loader.close()
            loader.reach(BEFORE_SPLIT)
            split_segment(host.disk, folder, overflow.segment.base_offset, overflow.position)


class LogLoader:
    """The opening of one log."""

    def __init__(self, host: Host, folder: str, topic_partition: TopicPartition, options: LogOptions) -> None:
        self._host = host
        self._disk = host.disk
        self._folder = folder
        self._topic_partition = topic_partition
        self._options = options
        self._now = host.clock.wall_ms()
        self._found = _Findings()
        self._segments: list[LogSegment] = []
        self._bases: list[int] = []  # of all log files, sorted; segments are opened one after another
        self._truncated = False  # a bad batch was found: no batch follows it
        self._producers_rebuilt = False  # recovery has applied every batch to the producer states
        self._epochs = self._open_epochs()
        self._epochs_lost = not self._disk.exists(f"{folder}/{LEADER_EPOCHS}")
        self._producers = self._new_producers()

    def load(self) -> Log:
        """BLOCKS. Open the log; OffsetOverflowError where a segment must be split first."""
        sweep(self._disk, self._folder, self.reach)
        names = self._disk.list(self._folder)
        self._bases = sorted(base for name in names if (base := offset_of(name, LOG)) is not None)
        self._remove_stray_indexes(names)
        self._open_segments()
        first = self._segments[0].base_offset if self._segments else START
        start = Offset(max(self._options.log_start_offset, first))
        if not self._options.clean and not self._truncated:
            self._recover(start)
            self._epochs.end_rebuild()
        end = self._end(start)
        if end < start:
            self.reach(BEFORE_START_OVER)
            self._start_over(start, end)
            end = start
        self.reach(BEFORE_EPOCHS)
        self._truncate_epochs(start, end)
        self.reach(BEFORE_PRODUCERS)
        self._load_producers(start, end)
        self.reach(AFTER_PRODUCERS)
        self._report(end)
        point = end if self._options.clean else min(self._options.recovery_point, end)
        opened = OpenedLog(
            segments=self._segments,
            epochs=self._epochs,
            producers=self._producers,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=Offset(point),
        )
        return Log(
            self._host,
            self._folder,
            self._topic_partition,
            self._options.config,
            opened,
            topic_id=self._options.topic_id,
            tail_bytes=self._options.tail_bytes,
            maps=self._options.maps,
        )

    def reach(self, failpoint: str) -> None:
        """Hit a failpoint of recovery, unless the log is that of a new replica."""
        if not self._options.is_new:
            self._host.failpoints.hit(failpoint)

    def close(self) -> None:
        """Close every file without a change."""
        for segment in self._segments:
            segment.close()

    # -- segments

    def _remove_stray_indexes(self, names: list[str]) -> None:
        for name in names:
            for suffix in INDEXES:
                base = offset_of(name, suffix)
                if base is not None and base not in self._bases:
                    self.reach(BEFORE_STRAY_INDEX)
                    self._disk.remove(f"{self._folder}/{name}")

    def _open_segment(self, base: int) -> LogSegment:
        options = segment_options(self._options.config, self._host, self._options.maps)
        return LogSegment(self._disk, self._folder, base, options)

    def _open_segments(self) -> None:
        """Open all segments in order; the indexes of those that `_recover` re-reads are not loaded."""
        for base in list(self._bases):
            segment = self._open_segment(base)
            self._segments.append(segment)
            if not self._options.clean and self._upper(base) > self._options.recovery_point:
                continue
            try:
                segment.load_indexes()
                if base == self._bases[-1]:
                    self.end_of(segment)
            except CorruptLogError as error:
                self._found.reasons.append(str(error))
                self.reach(BEFORE_INDEX_REBUILD)
                producers = self._new_producers()
                producers.load_below(Offset(base), Offset(self._bases[0]), self._now)
                replay_producers(self._segments[:-1], producers, Offset(base))
                self._recover_segment(segment, producers, epochs=None)
                if self._truncated:
                    return

    def _recover(self, start: Offset) -> None:
        """Re-read the segments that may not have been durable."""
        point = self._options.recovery_point
        unflushed = [s for s in self._segments if self._upper(s.base_offset) > point]
        if not unflushed:
            return
        base = Offset(unflushed[0].base_offset)
        self._epochs.rebuild_from(base)
        self._producers.load(base, start, self._now)
        replay_producers(self._segments[: -len(unflushed)], self._producers, base)
        for segment in unflushed:
            self._producers.map_end = Offset(max(segment.base_offset, self._producers.map_end))
            if segment is not unflushed[0]:
                self._producers.take_snapshot()
            self.reach(BEFORE_SEGMENT)
            self._recover_segment(segment, self._producers, epochs=self._epochs)
            self.reach(AFTER_SEGMENT)
            if self._truncated:
                return
        self._producers_rebuilt = True

    def _recover_segment(self, segment: LogSegment, producers: ProducerStates, *, epochs: LeaderEpochs | None) -> None:
        """Re-read one segment; the segments after its bad batch are removed before it is truncated."""
        result = recover_segment(
            segment,
            epochs=epochs,
            producers=producers,
            upper=self._upper(segment.base_offset),
            before_cut=lambda: self._prepare_cut(segment.base_offset),
        )
        self._found.segments_read += 1
        self._found.truncated_bytes += result.truncated_bytes
        if result.reason:
            self._truncated = True
            self._found.reasons.append(result.reason)

    def _prepare_cut(self, base: int) -> None:
        self._remove_above(base)
        self.reach(BEFORE_CUT)

    def _upper(self, base: int) -> int:
        """The largest possible end of the segment at `base`: the base offset of the next segment."""
        return next((following for following in self._bases if following > base), OFFSET_END)

    def _remove_above(self, base: int) -> None:
        opened = {segment.base_offset: segment for segment in self._segments}
        gone = [above for above in self._bases if above > base]
        for above in reversed(gone):
            segment = opened.get(above) or self._open_segment(above)
            self._found.truncated_bytes += segment.size
            self._found.removed.append(above)
            self.reach(BEFORE_LATER_SEGMENT)
            segment.remove()
        if gone:  # durably: no power loss may bring them back behind new records
            self._disk.sync_file(self._folder)
        self._bases = [kept for kept in self._bases if kept <= base]
        self._segments = [segment for segment in self._segments if segment.base_offset <= base]

    def _end(self, start: Offset) -> Offset:
        """The log end offset; an empty folder gets its first segment."""
        if not self._segments:
            segment = self._open_segment(start)
            segment.reset_indexes()
            self._segments, self._bases = [segment], [start]
        return self.end_of(self._segments[-1])

    def end_of(self, segment: LogSegment) -> Offset:
        """The end of the last segment; CorruptLogError where its indexes, which were loaded, are not its own."""
        return load_end(segment)

    def _start_over(self, start: Offset, end: Offset) -> None:
        self._found.reasons.append(f"log end offset {end} lies below log start offset {start}: emptied")
        self._remove_above(-1)
        self._end(start)
        self._epochs.clear()
        self._producers.clear(start)

    # -- leader epochs and producer states

    def _open_epochs(self) -> LeaderEpochs:
        try:
            return LeaderEpochs(self._disk, self._folder)
        except CorruptLogError as error:
            # rebuilt from every batch, because a broken cache must not decide a truncation
            self._host.trace.log("warning", f"{error}; rebuilding it from the log")
            self._disk.remove(f"{self._folder}/{LEADER_EPOCHS}")
            return LeaderEpochs(self._disk, self._folder)

    def _truncate_epochs(self, start: Offset, end: Offset) -> None:
        self._epochs.truncate_from_end(end)
        if self._epochs_lost or self._epochs_begin_late(start):
            self._epochs.clear()  # recovery has read only the last segments
            rebuild_epochs(self._segments, self._epochs)
            self._epochs.truncate_from_end(end)
        self._epochs.truncate_from_start(start)
        # in an empty log the previous line may have raised an epoch to the end: a second opening must give the same
        self._epochs.truncate_from_end(end)

    def _epochs_begin_late(self, start: Offset) -> bool:
        """True when the epoch of the first record is missing: the checkpointed log start that removed it was lost."""
        first = self._epochs.entries()[:1]
        if first and first[0].start_offset <= start:
            return False
        for segment in self._segments:
            if segment.base_offset > start or self._upper(segment.base_offset) > start:
                found = segment.find(start)
                if found is not None:
                    header = header_at(segment.file.read_at(found[0], HEADER_SIZE))
                    late = not first or first[0].start_offset > header.base_offset
                    return header.leader_epoch >= 0 and late
        return False

    def _new_producers(self) -> ProducerStates:
        return ProducerStates(self._disk, self._folder, expiration_ms=self._options.producer_expiration_ms)

    def _load_producers(self, start: Offset, end: Offset) -> None:
        self._producers.remove_stray_snapshots(self._bases)
        if not self._producers_rebuilt or self._truncated or self._producers.map_end != end:
            self._producers.load(end, start, self._now)
            if self._producers.map_end < end:
                replay_producers(self._segments, self._producers, end)
        self._producers.take_snapshot()
        if self._producers_rebuilt:
            self._producers.keep_last_batches()  # as after a clean start, which loads that snapshot

    def _report(self, end: Offset) -> None:
        found = self._found
        if found.removed or found.truncated_bytes or (found.segments_read and end):
            self._host.trace.emit(
                LogRecovered(
                    topic=self._topic_partition.topic,
                    partition=self._topic_partition.partition,
                    truncated_bytes=found.truncated_bytes,
                    reason="; ".join(found.reasons),
                    log_end_offset=end,
                    recovery_point=self._options.recovery_point,
                    segments_read=found.segments_read,
                    segments_removed=len(found.removed),
                    removed_base_offsets=tuple(sorted(found.removed)),
                )
            )
