"""fsyncs that appends wait for, made off the loop and in groups (B11).

Owns: at most one fsync in progress for each log. When a log's policy (`flush.messages`) requires an fsync, the log
reports it as due; records that are appended during an fsync share the next fsync (group commit), so that a slow disk
costs latency and not throughput.

    append             `log.acknowledgeable_end` does not advance; the log calls `due(log)`
    fsync succeeded    first the recovery point advances, then `acknowledgeable_end`, then `log.on_fsync_completed` runs
    fsync failed       the log and its data folder are offline (`log.failed`); `on_fsync_completed` runs as well

No record at or above `acknowledgeable_end` may be acknowledged, returned to a consumer, or counted as replicated.
"""

from __future__ import annotations

from ..errors import StorageError
from ..host.seam import Host
from .log import Log


class Flusher:
    """The fsyncs that the appends of one broker wait for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: set[Log] = set()

    def due(self, log: Log) -> None:
        """Make `log` durable, including records that are appended in the meantime."""
        if log not in self._running:
            self._running.add(log)
            self._host.tasks.spawn(self._run(log), name=f"log.flush {log.topic_partition}")

    async def _run(self, log: Log) -> None:
        try:
            while not log.advance_acknowledgeable_end():
                try:
                    await self._host.tasks.run_blocking(log.flush)
                except StorageError:  # `log.failed` is set, and the error is logged
                    pass
                else:
                    if not log.advance_acknowledgeable_end():
                        log.on_fsync_completed()
        finally:
            self._running.discard(log)
        log.on_fsync_completed()
