"""fsyncs that somebody waits for, off the loop and in groups (B11).

Owns: at most one fsync under way for each log. A log whose policy (`flush.messages`) asks for one says so; what
is appended while it runs shares the next (group commit), so a slow disk costs latency and not throughput.

    append             log.settled_offset stands still, `due(log)`
    fsync succeeded    the recovery point moves, then settled_offset, then `log.on_settled`
    fsync failed       the log (and its folder) is offline: `log.failed`; `on_settled` all the same

Nothing above `settled_offset` may be acknowledged, shown to a consumer, or counted as replicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import StorageError
from ..host.seam import Host

if TYPE_CHECKING:
    from .log import Log


class Flusher:
    """The flushes that appends of one broker wait for."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._running: set[Log] = set()

    def due(self, log: Log) -> None:
        """Bring `log` to stable storage; what is appended meanwhile too."""
        if log not in self._running:
            self._running.add(log)
            self._host.tasks.spawn(self._run(log), name=f"log.flush {log.topic_partition}")

    async def _run(self, log: Log) -> None:
        try:
            while not log.settle():
                try:
                    await self._host.tasks.run_blocking(log.flush)
                except StorageError:  # `failed` is set and logged
                    pass
                else:
                    if not log.settle():
                        log.on_settled()
        finally:
            self._running.discard(log)
        log.on_settled()


def nobody_waits() -> None:
    """What a log calls when it is settled, until somebody waits."""


def flush_at_once(log: Log) -> None:
    """What a log does that is no broker's: its appends fsync themselves."""
    log.flush()
    log.settle()
