"""The processes of the job: a thread starts them, kills some at random moments, and replaces each that has ended.

Owns: the processes, and a log file for each transactional id, to which all processes with that id append. Moments and
victims depend only on the random numbers that the caller gives.
What may fail: a process that does not end in `GRACE_S` after SIGTERM is killed, and `problems` has a line for it.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

PROGRAM = Path(__file__).with_name("job.py")
GRACE_S = 45.0
POLL_S = 0.05
RESTART_S = 0.2
"""Between the end of a process and the start of its successor."""


class JobProcesses:
    """`count` processes of the job, which live until `stop`."""

    def __init__(
        self, arguments: tuple[str, ...], folder: Path, rng: random.Random, *, count: int, kill_every_s: float
    ) -> None:
        self._arguments = arguments
        self._folder = folder
        self._random = rng
        self._kill_every_s = kill_every_s
        self._stopping = threading.Event()
        self._quiet = threading.Event()
        self._names = [f"job-{number}" for number in range(1, count + 1)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._thread = threading.Thread(target=self._supervise, name="job-processes", daemon=True)
        self.killed = 0
        self.failed = 0
        """Processes that ended by themselves, after an error that only a new process survives."""
        self.problems: list[str] = []

    def start(self) -> None:
        """Start all processes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for name in self._names:
            self._running[name] = self._start(name)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for so long, or until `stop`."""
        self._stopping.wait(seconds)

    def stop_kills(self) -> None:
        """Kill no more processes; those that end by themselves are still replaced."""
        self._quiet.set()

    def stop(self) -> None:
        """End all processes in order."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(GRACE_S)
        for process in self._running.values():
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for name, process in self._running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_S)
                self.problems.append(f"{name} did not end {GRACE_S:.0f} s after SIGTERM")
        self._running.clear()

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        # -P: the folder of the program is no place to import from
        command = [sys.executable, "-P", str(PROGRAM), *self._arguments, name]
        with self._log(name) as log:
            return subprocess.Popen(  # noqa: S603 - a program of this package
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def _log(self, name: str) -> IO[bytes]:
        return (self._folder / f"{name}.log").open("ab")

    def _supervise(self) -> None:
        next_kill = time.monotonic() + self._pause()
        while not self._stopping.wait(POLL_S):
            if time.monotonic() >= next_kill and not self._quiet.is_set():
                self._running[self._random.choice(self._names)].kill()
                self.killed += 1
                next_kill = time.monotonic() + self._pause()
            for name, process in self._running.items():
                code = process.poll()
                if code is None:
                    continue
                self.failed += code > 0
                if not self._stopping.wait(RESTART_S):
                    self._running[name] = self._start(name)

    def _pause(self) -> float:
        return self._random.uniform(0.5, 1.5) * self._kill_every_s
