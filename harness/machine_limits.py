"""What a machine must give a run: open files, free disk space, and paths of a bearable length.

Owns: the least of each, with its reason; `check`, before the first file of a run is written; and the words for what a
process met later (`explained` for an error of the operating system, `why_ended` for what a JVM printed). Each message
names the limit, where it was met, and the remedy. What may fail: `check` raises LimitError.
"""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

from harrow.cluster.errors import HarrowError

OPEN_FILES_LEAST = 512
"""Spark's JVM holds 300 of them, most of which are jars; a broker some for each connection and each partition."""
FREE_BYTES_LEAST = 32 * 1024 * 1024
"""Three brokers with a few partitions write 10 MB before the first record: indexes, internal topics, traces."""
OUT_PATH_BYTES_MOST = 360
"""SQLite, in which the registry stores its tree, opens paths of 512 bytes at most; the run's folders add 150."""
SHOWN_BYTES = 60


class LimitError(HarrowError):
    """The machine, or the shell that started this process, allows too little for a run."""


def check(out: Path) -> None:
    """LimitError when a run below the existing folder `out` would fail for lack of files, space or short paths."""
    for problem in (too_few_files(), too_little_space(out), too_long(out)):
        if problem:
            raise LimitError(problem)


def too_few_files() -> str:
    """Return why this process and its children may open too few files; empty when they may open enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_LEAST:
        return ""
    return (
        f"the hard limit of open files is {hard} (`ulimit -Hn`), and a run needs {OPEN_FILES_LEAST}: raise it in the "
        f"shell, the container (`--ulimit nofile=4096`) or the service (`LimitNOFILE=4096`) that starts pytest"
    )


def too_little_space(folder: Path) -> str:
    """Return why the disk of a folder is too full for a run; empty when it is not."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""  # the first file there says why
    free = disk.f_bavail * disk.f_frsize
    if free >= FREE_BYTES_LEAST:
        return ""
    return (
        f"the disk of {shortened(folder)} has {free / 1e6:.1f} MB free, and a run needs "
        f"{FREE_BYTES_LEAST / 1e6:.0f} MB: free space there, or name a folder on another disk with --harrow-out"
    )


def too_long(out: Path) -> str:
    """Return why the path of the out folder is too long; empty when it is not."""
    length = len(os.fsencode(out))
    if length <= OUT_PATH_BYTES_MOST:
        return ""
    return (
        f"the path of the out folder has {length} bytes ({shortened(out)}), and may have {OUT_PATH_BYTES_MOST}: the "
        "brokers' registry is an SQLite file below it, and SQLite opens paths of 512 bytes at most. "
        "Name a folder with a shorter path with --harrow-out"
    )


def shortened(path: Path | str) -> str:
    """Return a path as text, of a very long one only its begin and its end."""
    text = str(path)
    return text if len(text) <= 3 * SHOWN_BYTES else f"{text[:SHOWN_BYTES]}…{text[-SHOWN_BYTES:]}"


def explained(error: BaseException) -> str:
    """Return an error as text; where it is a limit of the machine, with the limit and the remedy."""
    number = error.errno if isinstance(error, OSError) else None
    where = shortened(str(error.filename)) if isinstance(error, OSError) and error.filename else ""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk of {where or 'a folder of the run'} is full: free space there, or name a folder on another "
            "disk with --harrow-out or TMPDIR"
        )
    if number in (errno.EMFILE, errno.ENFILE):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"too many open files: the limit is {soft} (`ulimit -n`), the hard limit {hard}; raise it to 4096"
    if number == errno.ENAMETOOLONG:
        return f"the path {where} is too long for the operating system: name a shorter one with --harrow-out or TMPDIR"
    if number in (errno.ENOMEM, errno.EAGAIN):
        return f"the machine has too little memory or too many processes ({error.args[-1]}): run fewer workers"
    return str(error)


PRINTED = (
    ("No space left on device", errno.ENOSPC),
    ("Too many open files", errno.EMFILE),
    ("File name too long", errno.ENAMETOOLONG),
    ("Cannot allocate memory", errno.ENOMEM),
    ("Could not reserve enough space", errno.ENOMEM),
    ("unable to create native thread", errno.ENOMEM),
)
"""What a process prints when it meets a limit, and the error of the operating system behind it."""


def limit_in(printed: str, folder: Path | None = None) -> str:
    """Return the limit that a process met, by what it printed, with the remedy; empty when there is none in it."""
    for words, number in PRINTED:
        if words in printed:
            return explained(OSError(number, words, str(folder) if folder else None))
    return ""


def why_ended(printed: str, folder: Path) -> str:
    """Return why a JVM ended, from what it printed: the limit that it met, or the lines that are no stack trace."""
    if why := limit_in(printed, folder):
        return f"the JVM ended: {why}"
    lines = [line.strip() for line in printed.splitlines() if not line.startswith(("\tat ", "\t..."))]
    if not any(lines):
        return "the JVM ended without a word"
    return f"the JVM ended: {'; '.join(line for line in lines if line)[-600:]}"
