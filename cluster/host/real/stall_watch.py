"""How long the loop of this process does not advance: evidence of a machine that is too busy.

Owns: `StallWatch`, a timer that runs every PERIOD_MS. When it runs STALL_MS late or later, nothing else of this process
ran meanwhile. It traces `process.stalled` with how late it was, and how much CPU time the process used in that time:
little where the machine did not run the process (or a fault paused it), as much as the time where one turn of the loop
was long. A verdict reads it where an ISR shrank without a fault (`harness/checks/busy_machine.py`).
"""

from __future__ import annotations

import asyncio
import time

from ...events.processes import ProcessStalled
from ..seam import Trace

PERIOD_MS = 250
STALL_MS = 300
"""Shorter delays are common on two cores and end no session."""


class StallWatch:
    """Watches the loop on which it was made, from `start` to `stop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, trace: Trace) -> None:
        self._loop = loop
        self._trace = trace
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        """Begin to watch."""
        self._due_s = self._loop.time() + PERIOD_MS / 1000
        self._cpu_s = time.process_time()
        self._timer = self._loop.call_later(PERIOD_MS / 1000, self._look)

    def stop(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        late_ms = round((self._loop.time() - self._due_s) * 1000)
        if late_ms >= STALL_MS:
            used_ms = round((time.process_time() - self._cpu_s) * 1000)
            self._trace.emit(ProcessStalled(late_ms=late_ms, cpu_ms=used_ms))
        self.start()
