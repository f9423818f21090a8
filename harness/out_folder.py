"""The out folder (`harrow-out`), which holds the folders of runs. Git ignores it, and old runs are removed.

A run of pytest has the folder `<out>/<date>-<time>-<process id>/`. The newest runs stay (`--harrow-keep-runs`, 20), and
no run is removed while its process exists: another terminal may be in the middle of it. Folders with other names, such
as `demo/` or `chaos-safe/` of the commands, are never removed.

Where the working folder cannot be written (a read-only checkout in a container), runs go to a new temporary folder,
and the header of the run says so. A folder that the user named on the command line is not replaced: that is an error.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import itertools
import os
import re
import shutil
import tempfile
from pathlib import Path

RUN_NAME = re.compile(r"\d{8}-\d{6}-(?P<pid>\d+)")
"""Name of the folder of one run, `run_name()`."""
IGNORE_FILE = ".gitignore"
IGNORE_EVERYTHING = "# Harrow made this folder. Its runs need not be committed.\n*\n"
LOCK_FILE = ".lock"
_held: list[int] = []  # descriptors of lock files, open until this process ends
"""Locks of the folders that this process claimed."""
TEMPORARY_PREFIX = "harrow-out-"


def why_not_writable(folder: Path) -> str:
    """Return why no folder can be made or written at `folder`; empty text when it can. Leaves nothing behind."""
    existing = folder
    while not os.path.lexists(existing) and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing}: {error.strerror or error}"


def temporary_folder() -> Path | None:
    """Make the folder that replaces one that cannot be written; None where no folder can be made at all.

    A run without Harrow's fixtures must not fail then; a test that starts a cluster reports the error.
    """
    try:
        return Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX))
    except OSError:
        return None


def prepare(folder: Path) -> None:
    """Make the out folder and let git ignore its content. A `.gitignore` of the user stays as it is.

    LimitError where the machine allows too little for a run (`machine_limits.py`).
    """
    from . import machine_limits  # a run without a cluster does not import it

    folder.mkdir(parents=True, exist_ok=True)
    machine_limits.check(folder)
    with contextlib.suppress(FileExistsError), (folder / IGNORE_FILE).open("x") as file:
        file.write(IGNORE_EVERYTHING)


def prune(folder: Path, keep: int) -> list[Path]:
    """Remove all runs except the newest `keep`; return the folders that were removed.

    A run whose process still exists stays, and so does what cannot be removed.
    """
    removed: list[Path] = []
    for run in _runs(folder)[:-keep]:
        if not _is_running(run):
            shutil.rmtree(run, ignore_errors=True)
            removed.append(run)
    return removed


def run_name() -> str:
    """Return the name of a new run's folder."""
    now = dt.datetime.now(tz=dt.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{os.getpid()}"


def claim(folder: Path) -> Path:
    """Return `folder`, or `folder-2`, `folder-3` while commands in other terminals use it.

    The claim lasts until this process ends. A command removes what an earlier run left in its folder, so two of them
    must not share one.
    """
    prepare(folder.parent)
    for number in itertools.count(1):
        chosen = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        chosen.mkdir(exist_ok=True)
        lock = os.open(chosen / LOCK_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        _held.append(lock)
        return chosen
    raise AssertionError  # the loop has no end


def _runs(folder: Path) -> list[Path]:
    """Return the runs below `folder`, the oldest first."""
    try:
        return sorted(path for path in folder.iterdir() if RUN_NAME.fullmatch(path.name))
    except OSError:
        return []


def _is_running(run: Path) -> bool:
    name = RUN_NAME.fullmatch(run.name)
    assert name is not None
    return os.path.exists(f"/proc/{name['pid']}")
