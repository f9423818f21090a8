"""A hierarchical timing wheel: timers that are added, removed and found due in constant time. No clock and no
I/O here.

The lowest wheel has slots of `tick_ms`; each wheel above has slots as long as the whole wheel below. A timer
lies in the lowest wheel that reaches its due time, and falls into the wheel below when the time arrives at its
slot. The idea is that of Varghese and Lauck (1987) and of Kafka's `TimingWheel`.

Example with ticks of 10 ms and 8 slots, at time 0: a timer due at 70 lies in the lowest wheel, one due at 100
in the second (slots of 80 ms), in the slot 80–159. At time 80 it falls into the lowest wheel, into the slot
100–109.

Invariant: no timer is found before it is due, and each is found by the first `advance` at its due time or
later.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Timer = TypeVar("Timer", bound=Hashable)


class TimingWheel(Generic[Timer]):
    """Timers with their due times, in milliseconds."""

    def __init__(self, now_ms: int, *, tick_ms: int = 10, slots: int = 64) -> None:
        if tick_ms < 1 or slots < 2:
            raise ValueError(f"tick_ms={tick_ms}, slots={slots}: expected 1 or more, and 2 or more slots")
        self._now_ms = now_ms
        self._tick_ms, self._slots = tick_ms, slots
        self._wheels: list[dict[int, dict[Timer, int]]] = []
        """For each wheel, from the lowest: the slots that have timers, by due time // length of a slot."""
        self._places: dict[Timer, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, timer: object) -> bool:
        return timer in self._places

    def add(self, timer: Timer, due_ms: int) -> None:
        """Add a timer; one that is there already has the new due time."""
        self.remove(timer)
        due = max(due_ms, self._now_ms)
        level, length = 0, self._tick_ms
        while due // length - self._now_ms // length >= self._slots:
            level, length = level + 1, length * self._slots
        while len(self._wheels) <= level:
            self._wheels.append({})
        slot = due // length
        self._wheels[level].setdefault(slot, {})[timer] = due_ms
        self._places[timer] = (level, slot)

    def remove(self, timer: Timer) -> None:
        """Remove a timer; nothing happens without it."""
        place = self._places.pop(timer, None)
        if place is None:
            return
        level, number = place
        slot = self._wheels[level][number]
        del slot[timer]
        if not slot:
            del self._wheels[level][number]

    def advance(self, now_ms: int) -> list[Timer]:
        """Remove and return the timers that are due, the earliest first. A time before the last one changes
        nothing.
        """
        before, self._now_ms = self._now_ms, max(now_ms, self._now_ms)
        due: list[tuple[int, Timer]] = []
        for level in reversed(range(len(self._wheels))):
            for slot in self._passed(level, before):
                for timer, at_ms in list(self._wheels[level][slot].items()):
                    if at_ms <= self._now_ms:
                        self.remove(timer)
                        due.append((at_ms, timer))
                    elif level:
                        self.add(timer, at_ms)
        due.sort(key=lambda found: found[0])
        return [timer for _, timer in due]

    def _passed(self, level: int, before_ms: int) -> list[int]:
        """Return the slots of a wheel that have timers, from the time of the last advance to the current time."""
        length, wheel = self._tick_ms * self._slots**level, self._wheels[level]
        first, last = before_ms // length, self._now_ms // length
        if last - first >= len(wheel):
            return sorted(slot for slot in wheel if slot <= last)
        return [slot for slot in range(first, last + 1) if slot in wheel]
