"""`make_owned`: a temporary folder that bears its process's number, so that a later process can remove it.

A process that was killed removes nothing, and what it left in the shared memory would take memory until the machine
starts again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path


def make_owned(prefix: str, root: Path, others: Iterable[Path] = ()) -> Path:
    """Create a folder in `root`; remove those of the same prefix whose process has ended, also in `others`."""
    for old in (path for place in {root, *others} for path in place.glob(f"{prefix}*")):
        owner = old.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and _ended(owner):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=root))


def _ended(owner: str) -> bool:
    """Whether a process has ended; False where the machine does not say it (without /proc)."""
    return os.path.exists("/proc/self") and not os.path.exists(f"/proc/{owner}")
