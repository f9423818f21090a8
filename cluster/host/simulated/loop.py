"""The loop of a simulated world: virtual time, and the calls that are due, each with its incarnation.

Owns: the clock of the simulation (whole nanoseconds; it jumps to the next timer), a heap of timers and a queue of
calls that are due. Every entry belongs to an `Incarnation`, one process from its start to its end, or to the world
itself. The loop drops the entries of an incarnation that has ended. Entries of a paused incarnation wait, in order,
and run when it is resumed (SIGSTOP and SIGCONT).

Invariants: entries of one instant run in the order in which they were made; nothing depends on a hash, an
address in memory or the machine's clock; a world that does not reach the next instant within
`TURNS_AN_INSTANT_MOST` turns raises LivelockError.

Sources: FoundationDB's simulator; Python's asyncio loop for the order of calls.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any

from ...errors import HarrowError

NS_PER_MS = 1_000_000
TURNS_AN_INSTANT_MOST = 200_000

Call = Callable[..., object]


class LivelockError(HarrowError):
    """Calls run endlessly without advancing the time."""


class ProcessKilled(BaseException):
    """Unwinds the code of a process that a failpoint in it has killed."""


class Incarnation:
    """One process from its start to its end."""

    __slots__ = ("alive", "held", "name", "paused", "report")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[SimTimer] = []
        self.report: Callable[[str, BaseException], None] | None = None
        """Receives the exceptions that calls of this incarnation raise."""

    @property
    def running(self) -> bool:
        """True while the process is alive and not paused."""
        return self.alive and not self.paused


class SimTimer:
    """A call that runs later; `Timer` of the seam."""

    __slots__ = ("args", "call", "incarnation")

    def __init__(self, incarnation: Incarnation | None, call: Call | None, args: tuple[Any, ...]) -> None:
        self.incarnation = incarnation
        self.call = call
        self.args = args

    def cancel(self) -> None:
        """Prevent the call; no error when it has run already."""
        self.call = None


class SimLoop:
    """Virtual time and the calls that wait for it."""

    def __init__(self, *, start_ns: int = 1_000_000_000_000) -> None:
        self._start_ns = start_ns
        self.now_ns = start_ns
        self.turns = 0
        """Number of calls that ran; equal in two equal simulations."""
        self._heap: list[tuple[int, int, SimTimer]] = []
        self._ready: deque[SimTimer] = deque()
        self._made = 0
        self._closers: dict[object, Callable[[], None]] = {}
        self.closed = False
        self.after_event: Callable[[Incarnation | None], None] | None = None
        """Called after each call that ran, with its incarnation; an exception that it raises ends the run."""

    @property
    def elapsed_ns(self) -> int:
        """Virtual time since the world began."""
        return self.now_ns - self._start_ns

    @property
    def now_ms(self) -> int:
        """Whole milliseconds on this clock."""
        return self.now_ns // NS_PER_MS

    # ------------------------------------------------------------ what is due

    def call_soon(self, incarnation: Incarnation | None, call: Call, *args: Any) -> None:
        """Run the call in this instant, after the calls that are due already."""
        self._ready.append(SimTimer(incarnation, call, args))

    def call_after(self, incarnation: Incarnation | None, delay_ns: int, call: Call, *args: Any) -> SimTimer:
        """Run the call `delay_ns` from now."""
        timer = SimTimer(incarnation, call, args)
        self._made += 1
        heapq.heappush(self._heap, (self.now_ns + max(0, delay_ns), self._made, timer))
        return timer

    def resume(self, incarnation: Incarnation) -> None:
        """Run the calls that became due while the incarnation was paused."""
        assert not incarnation.paused, f"{incarnation.name} is paused: its calls would be held again"
        held, incarnation.held = incarnation.held, []
        self._ready.extend(held)

    # ---------------------------------------------------------------- running

    def run_until_ns(self, deadline_ns: int) -> None:
        """Run every call that is due up to and at `deadline_ns`; the time is `deadline_ns` afterwards."""
        heap = self._heap
        while True:
            self._run_ready()
            if not heap or heap[0][0] > deadline_ns:
                break
            assert heap[0][0] >= self.now_ns, f"time goes back from {self.now_ns} to {heap[0][0]} ns"
            self.now_ns, _, timer = heapq.heappop(heap)
            self._ready.append(timer)
            # all timers of an instant run before the calls that they cause
            while heap and heap[0][0] == self.now_ns:
                self._ready.append(heapq.heappop(heap)[2])
        self.now_ns = max(self.now_ns, deadline_ns)

    def run_for(self, duration_ms: float) -> None:
        """Advance virtual time by `duration_ms`."""
        self.run_until_ns(self.now_ns + int(duration_ms * NS_PER_MS))

    def run_until(self, condition: Callable[[], bool], limit_ms: float, *, every_ms: float = 5) -> bool:
        """Run until `condition` (checked every `every_ms`) is true; False after `limit_ms`."""
        deadline_ns = self.now_ns + int(limit_ms * NS_PER_MS)
        self._run_ready()
        while not condition():
            if self.now_ns >= deadline_ns:
                return False
            self.run_until_ns(min(deadline_ns, self.now_ns + int(every_ms * NS_PER_MS)))
        return True

    def _run_ready(self) -> None:
        ready, most = self._ready, self.turns + TURNS_AN_INSTANT_MOST
        while ready:
            timer = ready.popleft()
            call, incarnation = timer.call, timer.incarnation
            if call is None:
                continue
            if incarnation is not None:
                if not incarnation.alive:
                    continue
                if incarnation.paused:
                    incarnation.held.append(timer)
                    continue
            timer.call = None
            self.turns += 1
            if self.turns > most:
                raise LivelockError(f"virtual time does not advance past {self.now_ns} ns: {call!r}")
            try:
                call(*timer.args)
            except ProcessKilled:
                continue
            except Exception as error:
                if incarnation is None or incarnation.report is None:
                    raise
                incarnation.report("callback", error)
            if self.after_event is not None:
                self.after_event(incarnation)

    # ---------------------------------------------------------------- the end

    def at_close(self, key: object, call: Callable[[], None]) -> None:
        """Run `call` when the world ends, unless `forget(key)` was called before."""
        assert key not in self._closers, f"{key!r} would lose what it runs at the end of the world"
        self._closers[key] = call

    def forget(self, key: object) -> None:
        """Undo `at_close`."""
        self._closers.pop(key, None)

    def close(self) -> None:
        """End the world: close the coroutines that still run, in the order in which they started."""
        self.closed = True
        self._heap.clear()
        self._ready.clear()
        while self._closers:
            closers, self._closers = self._closers, {}
            for call in closers.values():
                call()
        self._heap.clear()
        self._ready.clear()
