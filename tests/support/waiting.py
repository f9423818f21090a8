"""Bounded waiting for a condition: the only place in the tests that polls.

Every wait has the same deadline, which only ends a test that hangs: no test asserts how soon a condition holds. A wait
that reaches its deadline reports the condition and the last exception.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

HANGS_S = 60.0
POLL_S = 0.02


def until(
    condition: Callable[[], T | None],
    what: str | Callable[[], str] = "",
    *,
    timeout_s: float = HANGS_S,
    amid: tuple[type[Exception], ...] = (),
) -> T:
    """Calls `condition` until its result is true, and returns the result; AssertionError after `timeout_s`.

    An exception of a class in `amid` counts as false. `what` describes the condition in the error; a function is
    called only then.
    """
    deadline, poll, last = monotonic() + timeout_s, threading.Event(), ""
    while True:
        try:
            if result := condition():
                return result
        except amid as error:
            last = f"; it last raised {error!r}"
        if monotonic() >= deadline:
            described = what() if callable(what) else what or condition
            raise AssertionError(f"not within {timeout_s:g} s: {described}{last}")
        poll.wait(POLL_S)


def readable(descriptor: int, timeout_s: float = HANGS_S) -> bool:
    """Waits until the descriptor has something to read, or its process has ended (pidfd); False after `timeout_s`.

    `select.select` fails for descriptors from 1024 on, and a process that runs many tests has such descriptors.
    """
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    return bool(watched.poll(timeout_s * 1000))
