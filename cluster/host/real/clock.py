"""The machine's clocks: `Clock` of the seam on CLOCK_MONOTONIC and CLOCK_REALTIME.

Owns: the error of the wall clock that a fault has set. Monotonic times of all processes of one machine are comparable
(one clock since boot), which is what lets traces, taps and recorders of several processes be merged by time.
"""

from __future__ import annotations

import time

from ..knobs.clock_faults import ClockFaults

NS_PER_MS = 1_000_000


class RealClock:
    """The time of the operating system."""

    __slots__ = ("faults",)

    def __init__(self) -> None:
        self.faults = ClockFaults()
        """The error of the wall clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        return time.monotonic_ns() // NS_PER_MS

    monotonic_ns = staticmethod(time.monotonic_ns)
    """Nanoseconds on the same clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        wall_ms = time.time_ns() // NS_PER_MS
        if self.faults.active:
            return self.faults.read(wall_ms, self.monotonic_ms())
        return wall_ms

    def true_times(self) -> tuple[int, int]:
        """Wall time without error, and monotonic time."""
        return time.time_ns() // NS_PER_MS, self.monotonic_ms()
