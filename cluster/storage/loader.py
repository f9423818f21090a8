"""Opening a log folder (B9): sweep leftovers, open segments, check indexes, recover, make a `Log`.

Order, as Kafka's loader:

1. `.deleted` and `.cleaned` files go, and `.swap` files at or above the smallest `.cleaned` (their
   cleaning never ended). Other swaps are finished: `.swap` takes the place of what it replaces.
2. Index files without a log file go. Segments are opened in order of base offset.
3. After a clean stop indexes are loaded; a segment with a missing or broken one is re-read.
4. Otherwise every segment from the one with the recovery point on is re-read: CRCs checked, cut at the
   first bad batch, the segments after it deleted, indexes, epochs and producers told anew.
5. A log that ends below its start offset is emptied and begins there.
6. Leader epochs are cut at both ends; producers come from the newest snapshot and a replay.

What was recovered, and what was cut off and why, is traced as `log.recovered` (B10).
What may fail: OSError, CorruptLogError (a file that recovery cannot do without).
Source: Kafka's `LogLoader`, KIP-98, KIP-101.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config import TopicConfig
from ..errors import CorruptLogError
from ..host.seam import Host
from ..ids import Offset, TopicPartition
from .files import INDEXES, LEADER_EPOCHS, LOG, offset_of
from .leader_epochs import LeaderEpochs
from .log import Log, OpenedLog
from .producer_states import ProducerStates
from .recovery import recover_segment, replay_producers
from .segment import LogSegment
from .sweeping import sweep

START = Offset(0)
OFFSET_END = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What the folder does not say itself."""

    config: TopicConfig
    topic_id: str = ""
    log_start_offset: Offset = START
    recovery_point: Offset = START
    clean: bool = True
    """The broker's last stop was clean: every log was flushed and closed."""
    tail_bytes: int = 4 * 1024 * 1024
    producer_expiration_ms: int = 86_400_000


@dataclass(slots=True, kw_only=True)
class _Findings:
    """What recovery did to one log."""

    segments_read: int = 0
    segments_removed: int = 0
    truncated_bytes: int = 0
    reasons: list[str] = field(default_factory=list[str])


def open_log(host: Host, folder: str, topic_partition: TopicPartition, options: LogOptions) -> Log:
    """BLOCKS. The log in `folder`, which exists; an empty folder gives an empty log."""
    return _Loader(host, folder, topic_partition, options).load()


class _Loader:
    """One loading of one log."""

    def __init__(
        self, host: Host, folder: str, topic_partition: TopicPartition, options: LogOptions
    ) -> None:
        self._host = host
        self._disk = host.disk
        self._folder = folder
        self._topic_partition = topic_partition
        self._options = options
        self._now = host.clock.wall_ms()
        self._found = _Findings()
        self._segments: list[LogSegment] = []
        self._end = START  # where the segment re-read last ends
        self._told = False  # recovery has told the producers everything
        self._rebuild_epochs = False
        self._epochs = self._open_epochs()
        self._producers = ProducerStates(
            host.disk, folder, expiration_ms=options.producer_expiration_ms
        )

    def load(self) -> Log:
        sweep(self._disk, self._folder)
        names = self._disk.list(self._folder)
        bases = sorted(base for name in names if (base := offset_of(name, LOG)) is not None)
        self._remove_stray_indexes(names, bases)
        self._segments = [self._open_segment(base) for base in bases]
        if not self._segments:
            self._segments = [self._open_segment(self._options.log_start_offset)]
            self._segments[0].write_indexes()
        start = Offset(max(self._options.log_start_offset, self._segments[0].base_offset))
        end = self._load_clean(start) if self._options.clean else self._recover(start)
        if end < start:
            end = self._start_over(start, end)
        self._epochs.truncate_from_end(end)
        self._epochs.truncate_from_start(start)
        self._load_producers(start, end)
        self._report(end)
        recovered = end if self._options.clean else self._options.recovery_point
        opened = OpenedLog(
            segments=self._segments,
            epochs=self._epochs,
            producers=self._producers,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=Offset(min(recovered, end)),
        )
        return Log(
            self._host,
            self._folder,
            self._topic_partition,
            self._options.config,
            opened,
            topic_id=self._options.topic_id,
            tail_bytes=self._options.tail_bytes,
        )

    def _open_epochs(self) -> LeaderEpochs:
        try:
            return LeaderEpochs(self._disk, self._folder)
        except CorruptLogError as error:
            # told anew from every batch: a broken cache must not decide a truncation
            self._host.trace.log("warning", f"{error}; rebuilding it from the log")
            self._disk.remove(f"{self._folder}/{LEADER_EPOCHS}")
            self._rebuild_epochs = True
            return LeaderEpochs(self._disk, self._folder)

    def _remove_stray_indexes(self, names: list[str], bases: list[int]) -> None:
        for name in names:
            for suffix in INDEXES:
                base = offset_of(name, suffix)
                if base is not None and base not in bases:
                    self._disk.remove(f"{self._folder}/{name}")

    def _open_segment(self, base: int) -> LogSegment:
        config = self._options.config
        return LogSegment(
            self._disk,
            self._folder,
            base,
            index_interval=config.number("index.interval.bytes"),
            index_bytes_max=config.number("segment.index.bytes"),
            created_ms=self._now,
        )

    def _load_clean(self, start: Offset) -> Offset:
        """Trust the files; a segment whose index cannot be trusted is re-read."""
        if self._rebuild_epochs:
            return self._recover(start)
        end = start
        last = len(self._segments) - 1
        for index, segment in enumerate(self._segments):
            try:
                segment.load_indexes()
                if index == last:
                    end = segment.end_offset()
            except CorruptLogError as error:
                self._found.reasons.append(str(error))
                cut = self._recover_segment(segment, tell=False)
                if cut or index == last:
                    end = self._end
                if cut:
                    self._remove_after(index)
                    break
        return end

    def _recover(self, start: Offset) -> Offset:
        """Re-read what may not have been durable."""
        point = 0 if self._rebuild_epochs else self._options.recovery_point
        first = 0
        for index, segment in enumerate(self._segments):
            if segment.base_offset <= point:
                first = index
        for index, segment in enumerate(self._segments[:first]):
            try:
                segment.load_indexes()
            except CorruptLogError as error:
                self._found.reasons.append(str(error))
                if self._recover_segment(segment, tell=False):
                    self._remove_after(index)
                    return self._end
        self._told = True
        base = Offset(self._segments[first].base_offset)
        self._producers.load(base, start, self._now)
        replay_producers(self._segments[:first], self._producers, base)
        for index, segment in enumerate(self._segments[first:], first):
            if index > first and segment.base_offset >= self._producers.map_end:
                self._producers.commit({}, Offset(segment.base_offset))
                self._producers.take_snapshot()
            if self._recover_segment(segment, tell=True):
                self._remove_after(index)
                break
        return self._end

    def _recover_segment(self, segment: LogSegment, *, tell: bool) -> bool:
        """Re-read one segment; True when something was cut off."""
        result = recover_segment(
            segment,
            epochs=self._epochs if tell else None,
            producers=self._producers if tell else None,
            upper=self._base_after(segment),
        )
        self._found.segments_read += 1
        self._found.truncated_bytes += result.truncated_bytes
        if result.reason:
            self._found.reasons.append(result.reason)
        self._end = result.end_offset
        return result.truncated_bytes > 0

    def _base_after(self, segment: LogSegment) -> int:
        following = (s.base_offset for s in self._segments if s.base_offset > segment.base_offset)
        return min(following, default=OFFSET_END)

    def _remove_after(self, index: int) -> None:
        for segment in self._segments[index + 1 :]:
            self._found.truncated_bytes += segment.size
            self._found.segments_removed += 1
            segment.remove()
        del self._segments[index + 1 :]

    def _start_over(self, start: Offset, end: Offset) -> Offset:
        self._found.reasons.append(f"log end {end} lies below log start {start}: emptied")
        for segment in self._segments:
            self._found.truncated_bytes += segment.size
            self._found.segments_removed += 1
            segment.remove()
        self._segments = [self._open_segment(start)]
        self._segments[0].write_indexes()
        self._epochs.clear()
        self._producers.clear(start)
        return start

    def _load_producers(self, start: Offset, end: Offset) -> None:
        if not self._found.truncated_bytes and self._told and self._producers.map_end == end:
            self._producers.take_snapshot()
            return
        self._producers.load(end, start, self._now)
        if self._producers.map_end < end:
            replay_producers(self._segments, self._producers, end)
            self._producers.take_snapshot()
        self._producers.remove_stray_snapshots([s.base_offset for s in self._segments])

    def _report(self, end: Offset) -> None:
        found = self._found
        if found.segments_removed or found.truncated_bytes or (found.segments_read and end):
            self._host.trace.emit(
                "log.recovered",
                topic=self._topic_partition.topic,
                partition=self._topic_partition.partition,
                truncated_bytes=found.truncated_bytes,
                reason="; ".join(found.reasons),
                log_end_offset=end,
                segments_read=found.segments_read,
                segments_removed=found.segments_removed,
            )
