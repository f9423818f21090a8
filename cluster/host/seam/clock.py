"""Time as a host sees it: a monotonic clock and a wall clock.

Durations and monotonic times are whole milliseconds (`_ms`) or nanoseconds (`_ns`). Wall time is milliseconds since
the epoch, as in Kafka's records.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time as this host sees it."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds on the same clock; comparable between processes of one machine."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC: record timestamps, retention."""
        ...
