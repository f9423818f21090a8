"""Whether a folder takes a file at this moment: the cause of a start that does not end, which no log can hold then."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROBE = ".harrow-space"
PROBE_BYTES = 4096
LEAST_FREE_BYTES = 1 << 20  # the registry and three empty brokers take 0.3 MiB
LEAST_FREE_FILES = 64
"""So many files and folders the registry and three empty brokers make at least."""
REMEDY = "free space there, or choose another folder"


def why_not_writable(folder: Path) -> str:
    """Return the system's words and the folder when a small file cannot be written there; empty when it can."""
    probe = folder / PROBE
    try:
        probe.write_bytes(bytes(PROBE_BYTES))
    except OSError as error:
        return f"{error.strerror or error}: {folder}"
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""


def lack_of_space(folder: Path) -> str:
    """Return what of the folder's disk explains a start that failed: no file can be written, or little is free.

    SQLite, for one, says only that it cannot open its file; what it removes then makes room for another file.
    """
    if problem := why_not_writable(folder):
        return problem
    disk = os.statvfs(folder)
    if disk.f_files and disk.f_favail < LEAST_FREE_FILES:  # some file systems have no bound, and say 0 of 0
        return f"only {disk.f_favail} more files have room on the disk of {folder}"
    free = disk.f_bavail * disk.f_frsize
    return f"only {free // 1024} KiB are free in {folder}" if free < LEAST_FREE_BYTES else ""
