"""Calls that wait for the end of a delivery of frames, in one simulated incarnation.

Owns: whether a delivery is in progress, and the calls that wait (`Network.after_delivery` of the seam). They run at the
instant of the delivery, as on a real link. If the delivery paused the incarnation, they run after it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable


class DeferredCalls:
    """The deferred calls of one incarnation; `call_soon` drops the calls of a dead incarnation."""

    __slots__ = ("_after", "_call_soon", "_delivering", "_running")

    def __init__(self, call_soon: Callable[[Callable[[], object]], object], running: Callable[[], bool]) -> None:
        self._call_soon = call_soon
        self._running = running
        self._delivering = False
        self._after: list[Callable[[], object]] = []

    def after(self, call: Callable[[], object]) -> None:
        """Run `call` after the delivery in progress; without one, on the next turn of the loop."""
        if self._delivering:
            self._after.append(call)
        else:
            self._call_soon(call)

    def run(self, deliver: Callable[[], object]) -> None:
        """Deliver, then run the calls that wait; a nested delivery is part of the outer delivery."""
        if self._delivering:
            deliver()
            return
        self._delivering = True
        try:
            deliver()
        finally:
            self._delivering = False
            after, self._after = self._after, []
        for call in after:
            if self._running():
                call()
            else:
                self._call_soon(call)
