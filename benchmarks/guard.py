"""Keeps what a benchmark starts from outliving it: `python guard.py FOLDER`, its standard input a pipe.

A JVM of a peer is nobody's child once its script has ended, and one that stays spoils the next run. The guard waits
for the end of its input, which comes when the benchmark closes it **or dies in whatever way**; then it kills every
process whose command line names FOLDER (a fresh temporary folder), until none is left, and removes the folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

QUIET_SWEEPS = 3
SWEEP_S = 0.05
END_TIMEOUT_S = 30.0


@contextmanager
def guarded_folder(prefix: str) -> Generator[Path]:
    """A temporary folder that goes, with every process that names it, when the block or this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    guard = subprocess.Popen(
        [sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True
    )
    assert guard.stdin is not None
    try:
        yield folder
    finally:
        guard.stdin.close()
        guard.wait(END_TIMEOUT_S)


def naming(folder: str) -> list[int]:
    """Processes whose command line names `folder`, but for this one."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if folder.encode() in command:
                found.append(int(entry.name))
    return found


def main(folder: str) -> None:
    """Wait for the end of the benchmark, then leave nothing of it behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    quiet = 0
    while quiet < QUIET_SWEEPS:  # a script that was being killed may have begun one more
        pids = naming(folder)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        quiet = 0 if pids else quiet + 1
        time.sleep(SWEEP_S)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
