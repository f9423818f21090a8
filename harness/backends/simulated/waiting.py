"""Waits on virtual time: each look at a condition lets the world go on a little."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.005


def holds_within(condition: Callable[[], object], timeout_s: float, *, poll_s: float = POLL_S) -> bool:
    """Wait until a condition holds; False when it did not within `timeout_s` seconds of virtual time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(poll_s)
    return True
