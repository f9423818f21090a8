"""How a step waits for frames of clients, so that it fires while a client does something (`ScheduledFault.frames`).

A fault at a random moment mostly meets a client that waits. Where the frames of clients are counted
(`System.client_frames`), a step may fire with the n-th frame after its time: at that moment on a simulated cluster, and
within `POLL_MS` on real brokers that have taps, or a proxy with taps before them. Other systems count none: the step
fires at its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .schedule import ScheduledFault
    from .system import System

POLL_MS = 1
"""How often a thread looks while a step waits for frames."""
FRAMES_MOST_MS = 1_000
"""How long a step waits for its frames."""


class FrameWait:
    """The steps of one schedule that wait for frames."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._since: dict[str, int] = {}
        self.pending = False
        """Whether a step waits for frames at this moment."""

    def waits(self, step: ScheduledFault, due_ms: int, now_ms: int) -> bool:
        """Whether a step that is due at `due_ms` waits for frames."""
        count = self._system.client_frames
        if not step.frames or count is None:
            return False
        frames = count() - self._since.setdefault(step.id, count())
        assert frames >= 0, f"step {step.id}: {frames} frames since it is due"
        self.pending = frames < step.frames and now_ms < due_ms + FRAMES_MOST_MS
        return self.pending
