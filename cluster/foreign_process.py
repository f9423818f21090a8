"""A process of a program that is not Harrow's, such as Apache Kafka's JVM, handled like a broker of Harrow's.

Owns: how such a process becomes ready. It writes no status line, so `serves` is asked whether it serves. Everything
else is `ManagedProcess`: the fork server starts it, it ends when its supervising process ends, and signals go through
its pidfd. Its output is in `stdout.log` of its folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .errors import ClusterError
from .forkserver import fork_server
from .managed import START_TIMEOUT_S, ManagedProcess

POLL_S = 0.05


class ForeignProcess(ManagedProcess):
    """One process that executes `program`; `serves` returns at once whether it serves."""

    def __init__(
        self,
        label: str,
        folder: Path,
        program: Sequence[str],
        *,
        serves: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        options = {"folder": str(folder), "program": list(program), "environment": dict(environment or {})}
        super().__init__(fork_server(), label, folder, options)
        self._serves = serves
        self._starting = False

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        state = super().state
        return "starting" if state == "running" and self._starting else state

    def begin(self) -> None:
        """Start the process and return before it serves. No-op while it is alive."""
        with self._lock:
            if self.alive:
                return
            super().begin()
            self._starting = True
            assert self._status is not None
            os.close(self._status)  # the program writes no status line
            self._status = None

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it serves; ClusterError with the end of its output when it does not."""
        deadline = time.monotonic() + timeout_s
        if not self._starting and not self.alive:
            raise ClusterError(f"{self.label} is not running; start it first")
        while self._starting:
            self.check_ready()
            if not self._starting:
                return
            if time.monotonic() > deadline:
                self.kill()
                raise ClusterError(
                    f"{self.label} did not serve within {timeout_s:g} s; see {self.folder}{self._tail()}"
                )
            time.sleep(POLL_S)

    def check_ready(self) -> None:
        """Notice that a starting process serves, or has ended (ClusterError); never waits for it."""
        if not self.alive:
            starting, self._starting = self._starting, False
            if starting:
                raise ClusterError(f"{self.label} did not start; see {self.folder}{self._tail()}")
            return
        if self._starting:
            with contextlib.suppress(ClusterError):
                self._starting = not self._serves()
