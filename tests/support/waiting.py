"""Wait for what the cluster does by itself: one bound for every test, and words for what did not come.

No test asserts how soon; the bound only ends a run that hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

HANGS_S = 60.0
POLL_S = 0.02


def until(
    ask: Callable[[], T | None],
    what: str = "",
    *,
    timeout_s: float = HANGS_S,
    amid: tuple[type[Exception], ...] = (),
) -> T:
    """What `ask` answers as soon as it is true; the errors in `amid` count as not yet. AssertionError in the end."""
    deadline, poll, last = monotonic() + timeout_s, threading.Event(), ""
    while True:
        try:
            if answer := ask():
                return answer
        except amid as error:
            last = f"; it last raised {error!r}"
        assert monotonic() < deadline, f"not within {timeout_s:g} s: {what or ask}{last}"
        poll.wait(POLL_S)
