"""The cleaner threads of a broker (B8): each compacts the dirtiest log, again and again.

Owns: `log.cleaner.threads` tasks with an offset map each (a share of `log.cleaner.dedupe.buffer.size`), which follow
changes of the settings between two cleanings, the common
limit of their speed (`log.cleaner.io.max.bytes.per.second`), and the handling of a cleaning that fails:

    aborted (truncation, deletion, a pause, a closed log)   the log is due again soon
    a damaged batch in the log                              the log is not cleaned until the broker restarts
    an I/O error                                            the log is offline (B11)

Rewriting runs on a thread (`run_blocking`, step by step). The swap is one turn of the loop, and happens only if the log
has not changed since the step. A cleaner without a log that is due waits `log.cleaner.backoff.ms`. Retention of logs
with `compact,delete` runs here between two cleanings, so that retention and compaction of a log never run together.

Whose idea: Kafka's `LogCleaner`. Traced: `log.cleaned`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ...config import BrokerConfig
from ...errors import CorruptLogError, HarrowError, KafkaError, StorageError
from ...events.logs import LogCleaned, LogCleaning
from ...host.seam import Host, Promise, Task
from ..log import Log
from ..retention import clean_up
from .cleaner import CleanerStats, Cleaning, CleaningAbortedError, LogToClean, Replacement
from .log_cleaner_manager import LogCleanerManager
from .offset_map import OffsetMap
from .segment_swap import can_swap, swap

T = TypeVar("T")
MS_PER_SECOND = 1_000


class LogCleaner:
    """Compaction of a broker's logs. `logs()` returns the open logs."""

    def __init__(self, host: Host, config: BrokerConfig, logs: Callable[[], Iterable[Log]]) -> None:
        self._host = host
        self._config = config
        self.manager = LogCleanerManager(host, logs)
        self._tasks: dict[int, Task] = {}
        self._ends: dict[int, Promise[None]] = {}
        self._naps: dict[Promise[None], None] = {}  # a set that keeps its order
        self._free_ms = 0.0  # when the pace allows the next byte
        self._started = False
        self._stopping = False

    def start(self) -> None:
        """Start the cleaner threads, if `log.cleaner.enable`."""
        if not self._config.flag("log.cleaner.enable"):
            return
        self._started = True
        self.settings_changed()

    def settings_changed(self) -> None:
        """Start the threads that are missing, and end those above `log.cleaner.threads` after their cleaning."""
        if not self._started or self._stopping:
            return
        for number in range(self._config.number("log.cleaner.threads")):
            if number not in self._tasks:
                ended: Promise[None] = self._host.tasks.promise()
                self._ends[number] = ended
                run = self._run(number, ended)
                self._tasks[number] = self._host.tasks.spawn(run, name=f"log-cleaner-{number}")
        self.wake()

    def offset_map(self) -> OffsetMap:
        """An offset map with one thread's share of the memory."""
        return OffsetMap(*self._map_size())

    def _map_size(self) -> tuple[int, float]:
        threads = max(self._config.number("log.cleaner.threads"), 1)
        buffer_bytes = self._config.number("log.cleaner.dedupe.buffer.size")
        return buffer_bytes // threads, self._config.real("log.cleaner.io.buffer.load.factor")

    async def stop(self) -> None:
        """Stop the threads and abort their cleanings; the logs may be closed afterwards."""
        self._stopping = True
        self.wake()
        for ended in list(self._ends.values()):
            await ended

    def retains(self, log: Log) -> bool:
        """True when a cleaner does the retention of `log`."""
        return bool(self._tasks) and "compact" in log.config.text("cleanup.policy")

    def wake(self) -> None:
        """Make waiting cleaners look for a log that is due now."""
        for nap in self._naps:
            if not nap.done():
                nap.set_result(None)

    # -- one thread

    async def _run(self, number: int, ended: Promise[None]) -> None:
        offsets, size = self.offset_map(), self._map_size()
        try:
            while not self._stopping and number < self._config.number("log.cleaner.threads"):
                if size != self._map_size():
                    offsets, size = self.offset_map(), self._map_size()
                found = await self.clean_filthiest(offsets)
                self.retain()
                if not found:
                    await self._nap(self._config.number("log.cleaner.backoff.ms"))
        finally:
            del self._tasks[number], self._ends[number]
            if not ended.done():
                ended.set_result(None)

    async def _nap(self, delay_ms: float) -> None:
        nap: Promise[None] = self._host.tasks.promise()
        self._naps[nap] = None
        try:
            if not self._stopping:
                await self._host.tasks.wait(nap, max(delay_ms, 1))
        except TimeoutError:
            pass  # the nap is over
        finally:
            self._naps.pop(nap, None)

    def retain(self) -> None:
        """Apply retention to the compacted logs that are idle."""
        for log in self.manager.idle_compacted():
            try:
                clean_up(self._host, log)
            except StorageError as error:
                self._host.trace.log("error", f"retention: {error}")
            except KafkaError as error:
                self._host.trace.log("info", f"retention: {error}")

    # -- one cleaning

    async def clean_filthiest(self, offsets: OffsetMap) -> bool:
        """Compact the dirtiest log that is due; False when no log is due or nothing was cleaned."""
        task = self.manager.grab_filthiest()
        if task is None:
            return False
        log = task.log
        end = None
        try:
            end = (await self._clean(task, offsets)).end_offset
        except CorruptLogError as error:
            self._host.trace.log("error", f"{error}; this log is not compacted until the broker restarts")
            self.manager.damaged(log)
        except (CleaningAbortedError, KafkaError) as error:
            self._host.trace.log("info", str(error))
        except (OSError, ValueError) as error:
            self._refused(log, error)
        except HarrowError as error:
            self._host.trace.log("error", f"compaction of {log.folder}: {error}")
        finally:
            self.manager.done(log, end)
        if end is not None:
            await self.manager.write_checkpoints()
        # a cleaning without progress would only repeat at once
        return end is not None and end > task.first_dirty

    def _refused(self, log: Log, error: Exception) -> None:
        """An I/O error, or a file that was closed during an aborted cleaning."""
        try:
            self.manager.check(log)
        except CleaningAbortedError as aborted:
            self._host.trace.log("info", str(aborted))
            return
        log.fail("compact", error)

    async def _clean(self, task: LogToClean, offsets: OffsetMap) -> CleanerStats:
        log = task.log
        topic, partition = log.topic_partition
        self._host.trace.emit(
            LogCleaning(
                topic=topic,
                partition=partition,
                first_dirty=task.first_dirty,
                first_uncleanable=task.first_uncleanable,
                delete_retention_ms=log.config.number("delete.retention.ms"),
                min_lag_ms=log.config.number("min.compaction.lag.ms"),
            )
        )
        begun_ms = self._host.clock.monotonic_ms()
        cleaning = Cleaning(self._host, task, offsets, lambda: self._check(log))
        steps = cleaning.steps()
        stepping = True
        try:
            while True:
                stepping = True
                step: int | Replacement | None = await self._host.tasks.run_blocking(_next, steps)
                stepping = False
                if step is None:
                    break
                if isinstance(step, Replacement):
                    await self._swap(log, step)
                    continue
                pause_ms = self.pace_ms(step)
                if pause_ms >= 1:
                    await self._nap(pause_ms)
        finally:
            if not stepping:  # else a thread still runs a step, because this task is being cancelled
                steps.close()
        self._trace(task, cleaning.stats, self._host.clock.monotonic_ms() - begun_ms)
        return cleaning.stats

    def _check(self, log: Log) -> None:
        if self._stopping:
            raise CleaningAbortedError(f"{log.topic_partition}: the broker stops")
        self.manager.check(log)

    async def _swap(self, log: Log, step: Replacement) -> None:
        self._check(log)
        if not can_swap(log, step.old):
            raise CleaningAbortedError(f"{log.topic_partition}: its segments have changed")
        try:
            swap(self._host, log, step.new.segment, step.old)
        except (OSError, HarrowError) as error:  # only some files have their new names
            raise log.fail("swap a compacted segment into", error) from error
        await self._host.tasks.run_blocking(self._host.disk.sync_file, log.folder)

    def pace_ms(self, size: int) -> float:
        """How long to wait after `size` more bytes, at the common limit of all cleaners."""
        limit = self._config.real("log.cleaner.io.max.bytes.per.second")
        now_ms = self._host.clock.monotonic_ms()
        self._free_ms = max(self._free_ms, now_ms) + size * MS_PER_SECOND / limit
        return self._free_ms - now_ms

    def _trace(self, task: LogToClean, stats: CleanerStats, took_ms: int) -> None:
        self._host.trace.emit(
            LogCleaned(
                topic=task.log.topic_partition.topic,
                partition=task.log.topic_partition.partition,
                first_dirty=task.first_dirty,
                end=stats.end_offset,
                bytes_read=stats.bytes_read,
                bytes_written=stats.bytes_written,
                segments=stats.segments_replaced,
                map_full=stats.map_full,
                took_ms=took_ms,
            )
        )


def _next(steps: Iterator[int | Replacement]) -> int | Replacement | None:
    return next(steps, None)
