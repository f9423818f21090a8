"""Deadlines of one shard, each under a key.

Owns: the scheduled calls of a shard. Invariants: a key has at most one call; after `close` no call runs. All shards
of a coordinator share one timing wheel, so that scheduling and cancelling cost O(1).

Source: Kafka's CoordinatorTimer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ..purgatory import PurgatoryTimer
from ..purgatory.timing_wheel import TimerEntry


class ScheduledCall(TimerEntry):
    """One call at one deadline."""

    __slots__ = ("_run",)

    def __init__(self, deadline_ms: int, run: Callable[[ScheduledCall], None]) -> None:
        super().__init__(deadline_ms)
        self._run = run

    def expire(self) -> None:
        """The deadline has passed."""
        self._run(self)


class ShardTimers:
    """The scheduled calls of one shard."""

    __slots__ = ("_calls", "_closed", "_timer")

    def __init__(self, timer: PurgatoryTimer) -> None:
        self._timer = timer
        self._calls: dict[Hashable, ScheduledCall] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._calls)

    def schedule(self, key: Hashable, delay_ms: int, call: Callable[[], None]) -> None:
        """Run `call` once, `delay_ms` from now; it replaces the call that was scheduled under `key`."""
        assert not self._closed, f"{key} is scheduled on an unloaded shard"
        self.cancel(key)

        def run(scheduled: ScheduledCall) -> None:
            if self._calls.get(key) is scheduled:
                del self._calls[key]
                call()

        scheduled = ScheduledCall(self._timer.now_ms() + delay_ms, run)
        self._calls[key] = scheduled
        self._timer.add(scheduled)

    def cancel(self, key: Hashable) -> None:
        """Forget the call under `key`, if there is one."""
        scheduled = self._calls.pop(key, None)
        if scheduled is not None:
            scheduled.cancel()

    def close(self) -> None:
        """Forget every call."""
        self._closed = True
        for key in list(self._calls):
            self.cancel(key)
