"""The fence around a simulated program: calls whose result would depend on the world outside are errors.

Owns: `FenceError`, and the audit hook that raises it for threads, processes, sockets and name resolution while a
program's code runs (`Fence.on`). The error names the call and the remedies; `Fence.met` keeps each error, because a
program may catch it.

May fail: an audit hook stays until its process ends, so a fence is raised in a process of its own.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import ConfigError, HarrowError

REMEDY = 'use a fake in its place, harrow.allow_outside(…), or a backend of processes (backend="local")'
NAMES = {
    "sockets": ("socket.connect", "socket.bind"),
    "names": ("socket.getaddrinfo", "socket.gethostbyname"),
    "processes": ("subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.exec"),
    "threads": ("_thread.start_new_thread",),
}
"""What a test may allow, and the audit events of it."""
REFUSED = {
    "socket.connect": "opens a connection outside of the simulation",
    "socket.bind": "serves on a real socket",
    "socket.getaddrinfo": "resolves a name by the real network",
    "socket.gethostbyname": "resolves a name by the real network",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.fork": "starts a process",
    "os.exec": "replaces the process",
    "_thread.start_new_thread": "starts a thread",
}
"""Audit events of Python that are refused, and what each call does."""


class FenceError(HarrowError):
    """A call of a simulated program that would leave the simulation."""


class Fence:
    """Which calls are refused, while a program's code runs."""

    def __init__(self) -> None:
        self.on = False
        """Whether code of a program runs at this moment."""
        self.allowed: set[str] = set()
        """Audit events that are not refused."""
        self.met: list[FenceError] = []
        """Every error so far, also one that the program caught."""
        self.watched: dict[str, Callable[..., object]] = {}
        """By audit event: what is called with its arguments when a program's code raises it."""
        self._raised = False

    def allow(self, calls: Iterable[str]) -> None:
        """Refuse these no more; ConfigError for a name that is none of `NAMES`."""
        for name in calls:
            if name not in NAMES:
                raise ConfigError(f"allow_outside({name!r}): expected one of {', '.join(NAMES)}")
            self.allowed.update(NAMES[name])

    def raise_fence(self) -> None:
        """Watch the calls of this process, until it ends."""
        if self._raised:
            return
        self._raised = True
        sys.addaudithook(self._audit)
        # Python 3.11 has no audit event for a thread
        thread_start: Callable[..., None] = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            self.check("_thread.start_new_thread", thread.name)
            thread_start(thread)

        setattr(threading.Thread, "start", start)  # noqa: B010 - for type checkers, a method is no variable

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.on:
            if event in REFUSED:
                self.check(event, args)
            elif event in self.watched:
                self.watched[event](*args)

    def check(self, event: str, args: object) -> None:
        """Raise FenceError for a call that is refused at this moment."""
        if not self.on or event in self.allowed or _called_by_harrow():
            return
        raise self.refuse(f"{event}{_shown(args)}: this call {REFUSED[event]}")

    def refuse(self, call: str) -> FenceError:
        """Return the error for a call, and keep it."""
        error = FenceError(f"a simulated program called {call}; {REMEDY}")
        self.met.append(error)
        return error


def _called_by_harrow() -> bool:
    """Whether the call comes from Harrow's own code, such as a verdict that the test asks for."""
    frame = inspect.currentframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        if name != __name__ and top not in sys.stdlib_module_names:
            return top == "harrow"
        frame = frame.f_back
    return False


def _shown(args: object) -> str:
    if isinstance(args, tuple):
        words: tuple[object, ...] = args  # pyright: ignore[reportUnknownVariableType] - of any call
        return "(" + ", ".join(repr(word)[:100] for word in words if not _is_socket(word)) + ")"
    return f"({args!r})"


def _is_socket(value: object) -> bool:
    return type(value).__module__ in ("socket", "_socket")


FENCE = Fence()
"""The fence of this process."""
