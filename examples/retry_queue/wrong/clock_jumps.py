"""The bug: the wall clock says what is due. When it is set forward by an hour, everything that waits is due at once."""

from __future__ import annotations

import time

from retry_queue.clock import SteadyClock


def plant() -> None:
    """Read the wall clock each time."""

    def now_ms(self: SteadyClock) -> int:
        del self
        return int(time.time() * 1000)

    SteadyClock.now_ms = now_ms
