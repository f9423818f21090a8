"""Runs a program of the retry queue with a bug: `python run.py BUG MODULE ARGUMENTS`.

A bug is a module of this folder, whose `plant()` replaces one function of the package; "none" is the correct
program. Where RETRY_QUEUE_CLOCK names a file, the number in it, in seconds, is added to the wall clock of the
process.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

NONE = "none"


def jumping_clock(path: Path) -> None:
    """Let `time.time` jump by the seconds in a file."""
    wall_clock = time.time

    def jumped() -> float:
        return wall_clock() + float(path.read_text() if path.exists() else 0)

    time.time = jumped


def main(bug: str, module: str, words: list[str]) -> None:
    """Plant the bug, and run the program."""
    if (clock := os.environ.get("RETRY_QUEUE_CLOCK")) is not None:
        jumping_clock(Path(clock))
    if bug != NONE:
        importlib.import_module(bug).plant()
    importlib.import_module(module).main(words)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
