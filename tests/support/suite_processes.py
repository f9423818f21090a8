"""Runs a process of a client's tests for a bounded time (tests/client_suites.py).

A process that has not ended at its limit is interrupted first, because pytest writes its results then, and killed with
its process group some seconds later. No process of a suite is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

INTERRUPTED_S = 15.0
"""Time in which an interrupted process of tests writes the results that it has."""


def bounded(command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path, limit_s: float) -> bool:
    """Run a command in a process group of its own; return whether it ended before the limit."""
    with (
        output.open("w") as file,
        interruptible(),
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPTED_S)
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return True


@contextmanager
def interruptible() -> Generator[None]:
    """Let processes that start here be interrupted; a shell starts background commands with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
