"""Processes that are no child of a test's process and live as long as the run: keepers of what all workers share."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path


def detached(command: list[str], log: Path) -> int:
    """Starts a process that is not a child of this process; returns its pid."""
    shell = 'setsid "$@" >> "$LOG" 2>&1 < /dev/null & echo $!'
    environment = {**os.environ, "LOG": str(log)}
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *command], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


def outlive_signals() -> None:
    """Lets a keeper go on at the signals that end the run: it ends after the run."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # not SIG_IGN, which processes of the keeper would inherit: a JVM that does ends at no SIGTERM
        signal.signal(number, _go_on)


def await_end(descriptor: int) -> None:
    """Waits until the process of a pidfd has ended."""
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    watched.poll()


def _go_on(number: int, frame: object) -> None:
    del number, frame
