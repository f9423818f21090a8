"""The periodic work on a broker's logs: Kafka's schedule of LogManager.

Owns: `LogSchedule`, which checkpoints recovery points, fsyncs logs whose `log.flush.interval.ms` has passed, applies
retention and starts the cleaner. Checkpoints and fsyncs block, so they run off the loop.
Retention rolls and discards segments on the loop; only the deletion of their files is off it.

What may fail: a StorageError is logged here, and the storage room takes the log's folder offline.
"""

from __future__ import annotations

from collections.abc import Callable

from .config import LONG_MAX, BrokerConfig
from .errors import StorageError
from .host.seam import Host
from .storage import LogManager

FLUSH_CHECK_MS = 1_000
"""`log.flush.scheduler.interval.ms` of Harrow's clusters; with Kafka's default a topic's `flush.ms` has no effect."""


class LogSchedule:
    """Runs the periodic work; `start` once, and it ends with the tasks of the host."""

    def __init__(self, host: Host, config: BrokerConfig, logs: LogManager) -> None:
        self._host = host
        self._config = config
        self._logs = logs

    def start(self) -> None:
        """Begin every period now; the first work is done when the first period has passed."""
        logs, number = self._logs, self._config.number
        checkpoint_ms = number("log.flush.offset.checkpoint.interval.ms")
        self._periodically("recovery-points", checkpoint_ms, logs.checkpoint_recovery_points)
        flush_ms = number("log.flush.scheduler.interval.ms")
        if flush_ms < LONG_MAX:  # Kafka's default is never
            self._periodically("log-flush", flush_ms, logs.flush_overdue)
        retention_ms = number("log.retention.check.interval.ms")
        self._host.tasks.call_later(retention_ms, self._retain, retention_ms)
        logs.cleaner.start()

    async def stop(self) -> None:
        """End the cleaner; the periods end with the host."""
        await self._logs.cleaner.stop()

    def _periodically(self, name: str, period_ms: int, blocks: Callable[[], object]) -> None:
        async def run() -> None:
            while True:
                await self._host.tasks.sleep(max(1, period_ms))
                try:
                    await self._host.tasks.run_blocking(blocks)
                except StorageError as error:
                    self._host.trace.log("error", f"{name}: {error}")

        self._host.tasks.spawn(run(), name=name)

    def _retain(self, period_ms: int) -> None:
        try:
            self._logs.clean_up()
        except StorageError as error:
            self._host.trace.log("error", f"retention: {error}")
        self._host.tasks.call_later(period_ms, self._retain, period_ms)
