"""The purgatories' clockwork: a timing wheel and one pending call of the host (E1).

Owns: the wheel of one broker (all its purgatories share it) and the host timer armed for the next
bucket. Nothing ticks while nothing waits; a bucket's expiry is one call however many entries it has.

Source: Kafka's `SystemTimer` and its expiration reaper thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .timing_wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from ..host.seam import Host, Timer


class Expiring(Protocol):
    """What the timer calls when the deadline of an entry has come."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


class PurgatoryTimer:
    """A timing wheel driven by `host.tasks.call_later` at the next bucket's expiry."""

    def __init__(self, host: Host, tick_ms: int = 1, wheel_size: int = 256) -> None:
        self._host = host
        self._wheel = TimingWheel(host.clock.monotonic_ms(), tick_ms, wheel_size)
        self._armed: Timer | None = None
        self._armed_for_ms = 0
        self._closed = False

    def now_ms(self) -> int:
        """The host's monotonic time, which all deadlines are on."""
        return self._host.clock.monotonic_ms()

    def add(self, entry: TimerEntry) -> None:
        """Call `entry.expire()` at its deadline; on the next turn of the loop when that has passed."""
        if self._closed:
            return
        if not self._wheel.add(entry):
            self._host.tasks.call_soon(self._expire, entry)
            return
        if self._armed is None or entry.deadline_ms < self._armed_for_ms:
            self._arm()

    def close(self) -> None:
        """Expire nothing any more."""
        self._closed = True
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self) -> None:
        expiry = self._wheel.next_expiry_ms()
        if self._armed is not None:
            if expiry == self._armed_for_ms:
                return
            self._armed.cancel()
            self._armed = None
        if expiry is None or self._closed:
            return
        self._armed_for_ms = expiry
        delay_ms = max(0, expiry - self._host.clock.monotonic_ms())
        self._armed = self._host.tasks.call_later(delay_ms, self._fire)

    def _fire(self) -> None:
        self._armed = None
        due = self._wheel.advance(self._host.clock.monotonic_ms())
        try:
            for entry in due:
                self._expire(entry)
        finally:
            if self._armed is None:
                self._arm()

    def _expire(self, entry: TimerEntry) -> None:
        # One operation that fails must not keep the others from their deadlines.
        expire: Callable[[], None] | None = getattr(entry, "expire", None)
        if expire is None or self._closed:
            return
        try:
            expire()
        except Exception as error:  # reported: our bug, and the timer must go on
            self._host.trace.emit("task.failed", name="purgatory timer", error=repr(error))
            self._host.trace.log("error", f"delayed operation failed at its deadline: {error!r}")
