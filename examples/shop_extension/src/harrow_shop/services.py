"""`Service`: a process of the user's, which a fault can kill by its name."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

RUNNING: dict[str, Service] = {}
"""The services of this process by name."""


class Service:
    """A program that runs while the object is entered; `start` begins it again after `kill`."""

    def __init__(self, name: str, command: Sequence[str], folder: Path | None = None) -> None:
        self.name = name
        self.starts = 0
        self._command = list(command)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if self.name in RUNNING:
            raise ValueError(f"a service {self.name!r} runs already")
        RUNNING[self.name] = self
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        RUNNING.pop(self.name, None)
        self.kill()

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program, where it does not run."""
        if not self.alive:
            self._process = subprocess.Popen(self._command, cwd=self._folder)
            self.starts += 1

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
