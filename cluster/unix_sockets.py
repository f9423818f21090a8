"""Unix sockets, whose address holds a path of 107 bytes at most (103 on macOS), however long the folders' paths are.

Owns: the two ways around that limit. A process that binds or connects itself uses `reachable`, a short name for any
path. A program that only takes the path of a folder, as Spark does for its Python workers, gets `folder_near`: the
folder itself where its path is short enough, else a new private folder (mode 0700) in a place with a short path. The
caller removes that folder.

What may fail: no place with a short path can be written (ClusterError, which names the places).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

from .errors import ClusterError

PATH_BYTES_MOST = 103 if sys.platform == "darwin" else 107
RUNTIME_DIR = "XDG_RUNTIME_DIR"


@contextlib.contextmanager
def reachable(path: str | Path) -> Generator[str]:
    """Yield a name of the socket at `path` that fits into an address, for one bind or connect."""
    if len(os.fsencode(path)) <= PATH_BYTES_MOST:
        yield str(path)
        return
    parent, name = os.path.split(path)
    folder = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def fits(folder: str | Path, name_bytes: int) -> bool:
    """Whether a socket with a name of so many bytes can be bound in a folder by its path."""
    return len(os.fsencode(folder)) + 1 + name_bytes <= PATH_BYTES_MOST


def short_places() -> list[Path]:
    """Return the folders that have short paths on most machines, the user's own first."""
    own = os.environ.get(RUNTIME_DIR, "")
    named = [own] if os.path.isabs(own) else []
    return [Path(place) for place in (*named, "/tmp", "/var/tmp", "/dev/shm")]  # noqa: S108  (of mode 0700 below them)


def folder_near(folder: Path, *, name_bytes: int, prefix: str, places: Sequence[Path] | None = None) -> Path:
    """Return `folder`, or a new private folder with a shorter path, for sockets with names of `name_bytes` at most."""
    if fits(folder, name_bytes):
        return folder
    tried: list[str] = []
    for place in short_places() if places is None else places:
        if not fits(place, 1 + len(prefix) + 8 + name_bytes):  # mkdtemp adds 8 characters
            tried.append(f"{place} (its path is too long)")
            continue
        try:
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        except OSError as error:
            tried.append(f"{place} ({error.strerror or error})")
    raise ClusterError(
        f"no folder for Unix sockets: the path {folder} has {len(os.fsencode(folder))} bytes, and an address holds "
        f"{PATH_BYTES_MOST} bytes with the socket's name ({name_bytes}); tried {', '.join(tried)}. "
        f"Set TMPDIR or {RUNTIME_DIR} to a folder with a short path that can be written"
    )
