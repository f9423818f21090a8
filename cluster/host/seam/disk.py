"""Files of a host: open files, mapped files, locks, and the file system.

A call marked BLOCKS may take long (an fsync, the removal of a folder). On the loop it is called through
`Tasks.run_blocking`. All other calls take no longer than the page cache does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .buffers import Buffer, FileRegion


class Lock(Protocol):
    """A lock file that this process holds exclusively."""

    def release(self) -> None:
        """Give the lock up; a second call is no error."""
        ...


class MappedFile(Protocol):
    """A file mapped into memory, written through `view` (offset and time indexes, B3).

    What was written is in the page cache at once and survives the process; `sync` makes it durable.
    """

    @property
    def view(self) -> memoryview:
        """The whole mapping, writable; invalid after `resize` and `close`."""
        ...

    @property
    def size(self) -> int:
        """Bytes mapped, which is the file's size."""
        ...

    def resize(self, size: int) -> None:
        """Map `size` bytes instead: the file is extended by zeroes or cut."""
        ...

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        ...

    def close(self) -> None:
        """Unmap the file; a second call is no error."""
        ...


class DiskFile(Protocol):
    """One open file. Positions and sizes are bytes."""

    @property
    def path(self) -> str:
        """The path it was opened with."""
        ...

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end in one system call; returns the position they begin at.

        OSError (ENOSPC, EIO) when the disk refuses; what was written of them is cut off again if possible.
        """
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        ...

    def region(self, position: int, size: int) -> FileRegion:
        """A range to send; the file stays open until the range was sent, also after `close`."""
        ...

    def size(self) -> int:
        """Bytes in the file, appended ones included."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size`."""
        ...

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        ...

    def close(self) -> None:
        """Close the file; a second call is no error."""
        ...


class Disk(Protocol):
    """The file system. Paths are strings, absolute or relative to the process."""

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError when it is absent and `create` is False."""
        ...

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock the file `path` until `release` or the end of this process; BlockingIOError while it is taken."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file; FileNotFoundError when it is absent."""
        ...

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """BLOCKS briefly. Atomically: temporary file, fsync, rename, fsync of the folder (B2).

        Without `durable` nothing is fsynced: the new content survives the end of this process, and a power loss
        only after `sync_file`. Such a call takes no longer than the page cache does.
        """
        ...

    def sync_file(self, path: str) -> None:
        """BLOCKS. Bring a file or a folder, and its name, to stable storage; no error where there is none."""
        ...

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        ...

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError where there is none."""
        ...

    def is_folder(self, path: str) -> bool:
        """True for a folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one file system."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        ...

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change."""
        ...

    def files_left(self) -> tuple[int, int]:
        """About how many more files this process may open, and how many at the most; connections count as files."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """BLOCKS briefly. Size of the volume that holds `path` and bytes free for this process; -1: unknown."""
        ...
