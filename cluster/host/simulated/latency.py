"""The latency between two simulated machines.

Latencies are drawn from the random numbers of the world's network, so that frames of different links overtake each
other; each link keeps the order of its frames (`fabric.py`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .loop import NS_PER_MS

NS_PER_BYTE = 8
"""About 125 MB/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of a frame in milliseconds: usually between `low` and `high`, seldom up to `spike` more."""

    low: float = 0.05
    high: float = 0.6
    spike: float = 25.0
    spike_chance: float = 0.01

    def draw_ns(self, rng: random.Random, delay_ms: float) -> int:
        """Draw one latency and add `delay_ms`, the delay of a link rule; nanoseconds."""
        draw = rng.random
        ms = self.low + (self.high - self.low) * draw()
        if draw() < self.spike_chance:
            ms += self.spike * draw()
        return int((ms + delay_ms) * NS_PER_MS)
