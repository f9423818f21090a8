"""Ends the processes of a benchmark when the benchmark ends: `python guard.py FOLDER`, with a pipe as standard input.

The JVM of a peer has no parent process after its start script has ended, and a JVM that keeps running would distort
the next run. The guard waits for the end of its input, which comes when the benchmark closes the pipe **or dies in any
way**. Then it kills every process whose command line contains FOLDER (a new temporary folder), until none is left, and
removes the folder.
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
    """Creates a temporary folder. When the block or this process ends, the guard removes it and its processes."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    guard = subprocess.Popen([sys.executable, __file__, str(folder)], stdin=subprocess.PIPE, start_new_session=True)
    assert guard.stdin is not None
    try:
        yield folder
    finally:
        guard.stdin.close()
        guard.wait(END_TIMEOUT_S)


def naming(folder: str) -> list[int]:
    """Returns the processes whose command line contains `folder`, except this process."""
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
    """Waits for the end of the benchmark, then kills its processes and removes its folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    quiet = 0
    while quiet < QUIET_SWEEPS:  # a script may have started another process just before it was killed
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
