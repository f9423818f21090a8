"""Which log is cleaned next, and the state of each log's cleaning (B8).

Owns: a state for each log that is not idle, and the offset up to which each log is clean (`cleaner-offset-checkpoint`
of its data folder).

    state            event      next
    idle             grab       cleaning
    idle             pause      paused(1)
    cleaning         done       idle, and the checkpoint advances to the cleaned offset
    cleaning         pause      aborting(1)
    aborting(n)      pause      aborting(n + 1)
    aborting(n)      resume     aborting(n - 1)
    aborting(0)      done       idle
    aborting(n)      done       paused(n)
    paused(n)        pause      paused(n + 1)
    paused(n)        resume     paused(n - 1), idle from 1

Kafka's `pause` waits until the cleaner has released the log. Here it need not wait: a cleaner only reads files that the
log keeps open, no other component uses what it writes, and the swap calls `check` first, in the same turn of the loop.
So truncation, deletion and failure of a log abort its cleaning at once.

An entry of the checkpoint lies between log start offset and log end offset; an entry outside counts as the log start
offset. A truncation lowers it (`truncated`), a deletion removes it. A log with a damaged batch is not cleaned again
until the broker restarts.

Source: Kafka's `LogCleanerManager`; KIP-58 (`min.compaction.lag.ms`), KIP-354 (`max.compaction.lag.ms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial

from ...config import LONG_MAX
from ...errors import CorruptLogError
from ...host.seam import Host
from ...host.seam.failpoints import CLEANER_BEFORE_CHECKPOINT
from ...ids import Offset, TopicPartition
from ...wire.batches import HEADER_SIZE, header_at
from ..checkpoints import OffsetCheckpoint
from ..files import CLEANER_OFFSETS
from ..log import Log
from ..segment import LogSegment
from .cleaner import CleaningAbortedError, LogToClean


class Phase(Enum):
    """The state of a log's cleaning; a log without one is idle."""

    CLEANING = "cleaning"
    ABORTING = "aborting"
    PAUSED = "paused"


class _State:
    __slots__ = ("pauses", "phase")

    def __init__(self, phase: Phase, pauses: int = 0) -> None:
        self.phase = phase
        self.pauses = pauses


class LogCleanerManager:
    """Cleaning states and checkpoints of a broker's logs. On the loop only, except `check`."""

    def __init__(self, host: Host, logs: Callable[[], Iterable[Log]]) -> None:
        self._host = host
        self._logs = logs
        self._states: dict[TopicPartition, _State] = {}
        self._checkpoints: dict[str, OffsetCheckpoint] = {}
        self._cleaned: dict[str, dict[TopicPartition, Offset]] = {}
        self._uncleanable: set[Log] = set()
        self._writing = False
        self._write_again = False

    def watch(self, log: Log) -> None:
        """Follow the truncations of `log`, which was just opened. May write a checkpoint.

        A checkpoint above the log end offset belongs to records that recovery removed, or to an earlier log of that
        name. It is removed now, because new records below it would count as clean: compaction could then remove a
        tombstone before the value that it deletes.
        """
        log.on_cut = partial(self.truncated, log)
        cleaned = self._of(log)
        if cleaned.get(log.topic_partition, log.log_end_offset) > log.log_end_offset:
            del cleaned[log.topic_partition]
            folder = _data_folder(log)
            self._checkpoints[folder].write(cleaned)

    # -- states

    def phase(self, tp: TopicPartition) -> Phase | None:
        """The state of a log's cleaning; None: idle."""
        state = self._states.get(tp)
        return state.phase if state else None

    def pause(self, tp: TopicPartition) -> None:
        """Prevent cleanings until `resume`; a cleaning in progress is aborted."""
        state = self._states.setdefault(tp, _State(Phase.PAUSED))
        if state.phase is Phase.CLEANING:
            state.phase = Phase.ABORTING
        state.pauses += 1

    def resume(self, tp: TopicPartition) -> None:
        """Undo one `pause`."""
        state = self._states.get(tp)
        assert state is not None, f"{tp}: its cleaning is not paused"
        assert state.pauses > 0, f"{tp}: its cleaning is not paused"
        state.pauses -= 1
        if state.phase is Phase.PAUSED and state.pauses == 0:
            del self._states[tp]

    def abort(self, tp: TopicPartition) -> None:
        """Abort a cleaning in progress; the next one may begin at once."""
        if self.phase(tp) is not None:
            self.pause(tp)
            self.resume(tp)

    def check(self, log: Log) -> None:
        """CleaningAbortedError unless the cleaning of `log` may go on. Any thread."""
        state = self._states.get(log.topic_partition)
        if log.failed is not None or log.closed:
            raise CleaningAbortedError(f"{log.topic_partition}: the log is closed")
        if state is None or state.phase is not Phase.CLEANING:
            raise CleaningAbortedError(f"{log.topic_partition}: its cleaning was aborted")

    def done(self, log: Log, end_offset: Offset | None) -> None:
        """A cleaner releases `log`, which is clean up to `end_offset`; None: the cleaning was aborted.

        The checkpoint changes in memory; `write_checkpoints` writes it.
        """
        tp = log.topic_partition
        state = self._states[tp]
        if state.phase is Phase.ABORTING and state.pauses > 0:
            state.phase = Phase.PAUSED
            return
        del self._states[tp]
        if state.phase is Phase.CLEANING and end_offset is not None:
            self._of(log)[tp] = end_offset

    def damaged(self, log: Log) -> None:
        """A batch of `log` is damaged: do not clean it until the broker restarts."""
        self._uncleanable.add(log)

    # -- choosing

    def grab_filthiest(self) -> LogToClean | None:
        """The log with the largest dirty share among those that are due, now `cleaning`; None when no log is due."""
        now = self._host.clock.wall_ms()
        due: list[LogToClean] = []
        for log in self._compacted():
            task = self.to_clean(log, now)
            ratio = log.config.real("min.cleanable.dirty.ratio")
            if task.cleanable_bytes and (task.must or task.ratio > ratio):
                due.append(task)
        if not due:
            return None
        filthiest = max(due, key=lambda task: task.ratio)
        self._states[filthiest.log.topic_partition] = _State(Phase.CLEANING)
        return filthiest

    def idle_compacted(self) -> list[Log]:
        """Compacted logs that are idle: the cleaner also does their retention."""
        return list(self._compacted())

    def _compacted(self) -> Iterable[Log]:
        for log in self._logs():
            if (
                "compact" in log.config.text("cleanup.policy")
                and log.topic_partition not in self._states
                and log not in self._uncleanable
                and log.failed is None
            ):
                yield log

    def to_clean(self, log: Log, now_ms: int) -> LogToClean:
        """The part of `log` that may be cleaned at the wall time `now_ms`."""
        first_dirty = self._first_dirty(log)
        segments = log.segments
        ends = [segment.base_offset for segment in segments[1:]]
        sealed = list(zip(segments, ends, strict=False))  # the active segment has no end here
        dirty = [segment for segment, end in sealed if end > first_dirty]
        # no open transaction, nothing above the high watermark, never the active segment
        stable = log.last_stable_offset(log.high_watermark())
        bound = min(stable, segments[-1].base_offset)
        lag_ms = log.config.number("min.compaction.lag.ms")
        if lag_ms:
            young = (s.base_offset for s in dirty if s.max_timestamp > now_ms - lag_ms)
            bound = min(bound, next(young, bound))
        # Whole segments: a record above the bound must not decide which records below it stay.
        bases = [segment.base_offset for segment in segments if segment.base_offset <= bound]
        uncleanable = max(bases[-1], first_dirty) if bases else first_dirty
        return LogToClean(
            log=log,
            first_dirty=first_dirty,
            first_uncleanable=Offset(uncleanable),
            clean_bytes=sum(segment.size for segment, end in sealed if end <= first_dirty),
            cleanable_bytes=sum(s.size for s in dirty if s.base_offset < uncleanable),
            must=_is_overdue(log, dirty, now_ms),
        )

    # -- checkpoints

    def cleaned(self, log: Log) -> Offset:
        """Every segment below it was written and fsynced by a cleaning; 0: the log was never cleaned."""
        return self._of(log).get(log.topic_partition, Offset(0))

    def _first_dirty(self, log: Log) -> Offset:
        cleaned = self._of(log).get(log.topic_partition, log.log_start_offset)
        if log.log_start_offset <= cleaned <= log.log_end_offset:
            return cleaned
        return log.log_start_offset

    def truncated(self, log: Log, offset: Offset) -> None:
        """`log` was truncated to `offset`: abort its cleaning, and count nothing above as clean."""
        self.abort(log.topic_partition)
        cleaned = self._of(log)
        if cleaned.get(log.topic_partition, offset) > offset:
            cleaned[log.topic_partition] = offset
            self._write_soon()

    def deleted(self, log: Log) -> None:
        """`log` was deleted; a new log may get its name."""
        self.abort(log.topic_partition)
        self._uncleanable.discard(log)
        if self._of(log).pop(log.topic_partition, None) is not None:
            self._write_soon()

    def _of(self, log: Log) -> dict[TopicPartition, Offset]:
        folder = _data_folder(log)
        cleaned = self._cleaned.get(folder)
        if cleaned is None:
            path = f"{folder}/{CLEANER_OFFSETS}"
            checkpoint = self._checkpoints[folder] = OffsetCheckpoint(self._host.disk, path)
            try:
                cleaned = checkpoint.read()
            except CorruptLogError as error:
                self._host.trace.log("warning", f"{error}; every log counts as dirty")
                cleaned = {}
            self._cleaned[folder] = cleaned
        return cleaned

    def _write_soon(self) -> None:
        self._host.tasks.spawn(self.write_checkpoints(), name="cleaner-checkpoint")

    async def write_checkpoints(self) -> None:
        """Write every checkpoint on a thread, and again if a checkpoint changes meanwhile."""
        self._write_again = True
        if self._writing:
            return  # two writers would use the same temporary file
        self._writing = True
        try:
            while self._write_again:
                self._write_again = False
                self._host.failpoints.hit(CLEANER_BEFORE_CHECKPOINT)
                for folder, cleaned in list(self._cleaned.items()):
                    await self._write(folder, dict(cleaned))
        finally:
            self._writing = False

    async def _write(self, folder: str, cleaned: dict[TopicPartition, Offset]) -> None:
        try:
            await self._host.tasks.run_blocking(self._checkpoints[folder].write, cleaned)
        except OSError as error:
            for log in self._logs():
                if _data_folder(log) == folder and log.failed is None:
                    log.fail("write the cleaner checkpoint beside", error)


def _data_folder(log: Log) -> str:
    return log.folder.rpartition("/")[0]


def _is_overdue(log: Log, dirty: Iterable[LogSegment], now_ms: int) -> bool:
    """True when a dirty segment begins with a batch older than `max.compaction.lag.ms` (KIP-354)."""
    lag_ms = log.config.number("max.compaction.lag.ms")
    if lag_ms == LONG_MAX:
        return False
    return any(0 < _first_timestamp(segment) < now_ms - lag_ms for segment in dirty)


def _first_timestamp(segment: LogSegment) -> int:
    if segment.size == 0:
        return -1
    return header_at(segment.file.read_at(0, HEADER_SIZE)).max_timestamp
