"""When a failed input is tried again, and how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Waits `first_ms` after the first attempt, then twice as long each time, never longer than `most_ms`."""

    attempts: int = 5
    """After so many the input is a dead letter."""
    first_ms: int = 1_000
    most_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts={self.attempts}: expected 1 or more")
        if not 0 < self.first_ms <= self.most_ms:
            raise ValueError(f"first_ms={self.first_ms}, most_ms={self.most_ms}: expected 0 < first_ms <= most_ms")

    def wait_ms(self, attempts: int) -> int:
        """Return how long to wait after so many attempts."""
        doublings = min(attempts - 1, 40)  # 2**40 ms are 35 years
        return min(self.first_ms << max(doublings, 0), self.most_ms)
