"""The timer of a broker's purgatories: a timing wheel, and a timer of the host for its next expiry (E1).

Owns: the broker's timing wheel, which all its purgatories share, and the host timer for the next bucket. No timer
runs while nothing waits. The expiry of a bucket costs one call of the host, however many entries the bucket has.

Invariant: while the wheel has entries and the timer is open, a host timer is armed for the wheel's next expiry or
for an earlier time.

Source: Kafka's `SystemTimer` and its expiration reaper thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..events.processes import TaskFailed
from .timing_wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from ..host.seam import Host, Timer


class PurgatoryTimer:
    """A timing wheel driven by `host.tasks.call_later` at the next bucket's expiry."""

    def __init__(self, host: Host, tick_ms: int = 1, wheel_size: int = 256) -> None:
        self._host = host
        self._wheel = TimingWheel(host.clock.monotonic_ms(), tick_ms, wheel_size)
        self._armed: Timer | None = None
        self._armed_for_ms = 0
        self._closed = False

    def now_ms(self) -> int:
        """Returns the host's monotonic time; all deadlines refer to it."""
        return self._host.clock.monotonic_ms()

    def add(self, entry: TimerEntry) -> None:
        """Calls `entry.expire()` at its deadline, or in the loop's next turn when the deadline has passed."""
        if self._closed:
            return
        if not self._wheel.add(entry):
            self._host.tasks.call_soon(self._expire, entry)
            return
        if self._armed is None or entry.deadline_ms < self._armed_for_ms:
            self._arm()
        assert self._armed is not None, "a waiting entry needs a host timer"

    def close(self) -> None:
        """Stops the timer: no entry expires after this call."""
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
        # An operation that raises must not stop the others from expiring at their deadlines.
        expire: Callable[[], None] | None = getattr(entry, "expire", None)
        if expire is None or self._closed:
            return
        try:
            expire()
        except Exception as error:  # a bug in the operation: report it, and continue with the other entries
            self._host.trace.emit(TaskFailed(name="purgatory timer", error=repr(error)))
            self._host.trace.log("error", f"a delayed operation raised at its deadline: {error!r}")
