"""Locks on files (flock) that are awaited for a bounded time: their holder may be stopped.

What may fail: nothing; `lock` returns False when the time is over.
"""

from __future__ import annotations

import fcntl
import time

POLL_S = 0.002
POLL_MOST_S = 0.1


def lock(descriptor: int, timeout_s: float) -> bool:
    """Take the exclusive lock of an open file; False when another process still has it after `timeout_s`."""
    deadline, pause_s = time.monotonic() + timeout_s, POLL_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, POLL_MOST_S)
        else:
            return True
