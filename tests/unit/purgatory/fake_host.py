"""A host for a purgatory: clock, timers and trace, whose time only moves when a test calls `advance`."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeHost:
    """The clock, tasks and trace of a host; `calls` counts the timers that were armed."""

    def __init__(self) -> None:
        self.clock = self.tasks = self.trace = self
        self.now = 100
        self.calls = 0
        self.logged: list[str] = []
        self._heap: list[tuple[float, int, Timer, Callable[[], object]]] = []

    def monotonic_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: Any) -> Timer:
        timer = Timer()
        self.calls += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self.calls, timer, lambda: call(*args)))
        return timer

    def call_soon(self, call: Callable[..., object], *args: Any) -> None:
        self.call_later(0, call, *args)

    def emit(self, event: str, /, **fields: object) -> None:
        self.logged.append(f"{event} {fields}")

    def log(self, level: str, message: str, /, **fields: object) -> None:
        self.logged.append(f"{level} {message} {fields}")

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while self._heap and self._heap[0][0] <= end:
            when, _, timer, call = heapq.heappop(self._heap)
            self.now = max(self.now, int(when))
            if not timer.cancelled:
                call()
        self.now = end
