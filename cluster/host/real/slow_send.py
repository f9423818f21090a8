"""Frames of a slow link, which wait until the delay of a link rule is over, or its rate lets them leave (K2).

Owns: the waiting frames of one slow link, in the order in which they were sent, and one timer for the first.

Invariants: a frame is queued as a whole, once, not before `delay_ms` have passed since it was sent, and after every
frame sent before it. A new delay applies to later frames; a frame behind one with a longer delay waits for that one.
No frame is lost: `let_go` releases all frames (the rule was removed, the host ends); only `drop` discards them (the
link was reset or its socket failed).

Time is the machine's clock, not the loop's: uvloop's time does not advance during a turn and has whole milliseconds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..knobs.bandwidth import NS_PER_S, Bandwidth
from .pieces import Piece

Release = Callable[[Sequence[Piece]], None]
"""Takes the pieces of a frame into the link's own queue."""

NOT_SLOW: Mapping[str, int] = {"delay_ms": 0, "waiting_bytes": 0, "delayed_bytes": 0}


class Waiting(NamedTuple):
    """One frame that waits."""

    due_s: float
    pieces: Sequence[Piece]
    size: int


class SlowSend:
    """The delay of one link; created when a rule makes the link slow."""

    __slots__ = (
        "_bandwidth",
        "_frames",
        "_loop",
        "_release",
        "_released",
        "_timer",
        "bytes_per_s",
        "delay_ms",
        "delayed_bytes",
        "waiting_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        release: Release,
        released: Callable[[], None],
        bandwidth: Bandwidth | None = None,
    ) -> None:
        self._bandwidth = bandwidth or Bandwidth()
        self._loop = loop
        self._released = released
        self._frames: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._release = release
        self.delay_ms = 0
        self.bytes_per_s = 0
        """0: no limit."""
        self.waiting_bytes = 0
        """Bytes of the frames that wait."""
        self.delayed_bytes = 0
        """Bytes of the frames that were released after their delay: evidence."""

    def add(self, pieces: Sequence[Piece], size: int) -> None:
        """Add a frame that was sent now."""
        leaves_ns = time.monotonic_ns()
        if self.bytes_per_s:
            leaves_ns = self._bandwidth.departure_ns(leaves_ns, size, self.bytes_per_s)
        self._frames.append(Waiting(leaves_ns / NS_PER_S + self.delay_ms / 1000, pieces, size))
        self.waiting_bytes += size
        if self._timer is None:
            self._wait()

    def let_go(self) -> None:
        """Release all frames at once, in order."""
        while self._frames:
            self._release_first()
        self._stop()
        self._released()

    def report(self) -> Mapping[str, int]:
        """As JSON: evidence for the probe of a fault."""
        return {"delay_ms": self.delay_ms, "waiting_bytes": self.waiting_bytes, "delayed_bytes": self.delayed_bytes}

    def drop(self) -> None:
        """Discard all frames."""
        self._frames.clear()
        self.waiting_bytes = 0
        self._stop()

    def _wait(self) -> None:
        left_ms = math.ceil((self._frames[0].due_s - time.monotonic()) * 1000)
        self._timer = self._loop.call_later(max(1, left_ms) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        now = time.monotonic()
        while self._frames and self._frames[0].due_s <= now:
            self.delayed_bytes += self._frames[0].size
            self._release_first()
        if self._frames:
            self._wait()
        self._released()

    def _release_first(self) -> None:
        frame = self._frames.popleft()
        self.waiting_bytes -= frame.size
        self._release(frame.pieces)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
