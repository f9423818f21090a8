"""What a delivery of frames puts off until they have been served, in a simulated life.

Owns: whether frames are being delivered, and the calls put off (`Network.after_delivery` of the seam). They run in the
instant of the delivery, as on a real link; in a life that stands still, or is over by then, when and if it goes on.
"""

from __future__ import annotations

from collections.abc import Callable


class Delivery:
    """Of one life; `call_soon` is its own, which drops what a dead life was to do."""

    __slots__ = ("_after", "_call_soon", "_running", "_under_way")

    def __init__(
        self, call_soon: Callable[[Callable[[], object]], object], running: Callable[[], bool]
    ) -> None:
        self._call_soon = call_soon
        self._running = running
        self._under_way = False
        self._after: list[Callable[[], object]] = []

    def after(self, call: Callable[[], object]) -> None:
        """Run `call` when the delivery has ended; on the next turn when there is none."""
        if self._under_way:
            self._after.append(call)
        else:
            self._call_soon(call)

    def run(self, deliver: Callable[[], object]) -> None:
        """Deliver, then run what was put off; a delivery within another is part of it."""
        if self._under_way:
            deliver()
            return
        self._under_way = True
        try:
            deliver()
        finally:
            self._under_way = False
            after, self._after = self._after, []
        for call in after:
            if self._running():
                call()
            else:
                self._call_soon(call)
