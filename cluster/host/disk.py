"""Files as the operating system has them: `Disk` and `DiskFile` of the seam.

Invariants:

* A file knows its own size and appends at that position (`pwritev`), so an append is one system call
  and reading beside it needs no seek. One process, one `RealFile` a path: nobody else may append.
* An append that fails half-way leaves the file at its size before it: a partial write is continued, an
  OSError (ENOSPC, EIO) cuts the file back and is raised.
* `replace` is atomic and durable: temporary file, fsync, rename, fsync of the folder (B2).

What may fail: everything raises OSError as the system reports it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Sequence

from .clock import NS_PER_MS
from .seam import Buffer, DiskFile, MappedFile

IOV_MAX = 1024
"""Linux takes so many buffers in one system call (UIO_MAXIOV)."""

TEMPORARY = ".tmp"


class RealFile:
    """One open file; positions and sizes are bytes."""

    __slots__ = ("_fd", "_path", "_size")

    def __init__(self, path: str, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._path = path
        self._fd = os.open(path, flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._path

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end in one system call; returns the position they begin at."""
        position = self._size
        wanted = sum(map(len, parts))
        try:
            written = 0
            if len(parts) <= IOV_MAX:
                written = os.pwritev(self._fd, parts, position)
            if written < wanted:
                self._write_rest(b"".join(parts), written)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is the one to tell
                os.ftruncate(self._fd, position)
            raise
        self._size = position + wanted
        return position

    def _write_rest(self, data: bytes, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            count = os.pwrite(self._fd, view[written:], self._size + written)
            if count == 0:  # never for a regular file; better an error than a loop
                raise OSError(f"{self._path}: the system takes no more bytes")
            written += count

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], position + written)
        self._size = max(self._size, position + len(view))

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        data = os.pread(self._fd, size, position)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def region(self, position: int, size: int) -> RealRegion:
        """A range to be sent; the file stays open until it was, whoever closes it."""
        return RealRegion(os.dup(self._fd), position, size)

    def size(self) -> int:
        """Bytes in the file, appended ones included."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut the file to `size`."""
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Give the file back; closing twice is no error."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealRegion:
    """A range of a file behind a descriptor of its own."""

    __slots__ = ("fd", "position", "size")

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd = fd
        self.position = position
        self.size = size

    def read(self) -> bytes:
        """The bytes themselves."""
        return os.pread(self.fd, self.size, self.position)

    def __del__(self) -> None:
        os.close(self.fd)


class RealMap:
    """A file mapped into memory."""

    __slots__ = ("_fd", "_map", "_view")

    def __init__(self, path: str, size: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._fd).st_size < size:
                os.ftruncate(self._fd, size)
            self._map_whole()
        except BaseException:
            os.close(self._fd)
            raise

    def _map_whole(self) -> None:
        self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        self._view = memoryview(self._map)

    @property
    def view(self) -> memoryview:
        """The whole mapping, writable."""
        return self._view

    @property
    def size(self) -> int:
        """Bytes mapped."""
        return len(self._map)

    def resize(self, size: int) -> None:
        """Map `size` bytes instead; `size` is at least 1, since nothing cannot be mapped."""
        self._view.release()
        self._map.close()
        os.ftruncate(self._fd, size)
        self._map_whole()

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        self._map.flush()

    def close(self) -> None:
        """Give the mapping back; closing twice is no error."""
        if self._fd >= 0:
            self._view.release()
            self._map.close()
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealDisk:
    """The file system of this machine."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError where it is absent and not to be created."""
        return RealFile(path, create=create)

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        return RealMap(path, size)

    def read(self, path: str) -> bytes:
        """A whole small file; FileNotFoundError where there is none."""
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """BLOCKS briefly. Atomically: temporary file, fsync if `durable`, rename, fsync of the folder (B2)."""
        temporary = path + TEMPORARY
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(os.path.dirname(path) or ".")

    def sync_file(self, path: str) -> None:
        """BLOCKS. Bring a replaced file and its name to stable storage; no error where there is none."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        return os.path.exists(path)

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError where there is none."""
        return sorted(os.listdir(folder))

    def is_folder(self, path: str) -> bool:
        """True for a folder."""
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one file system."""
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change."""
        return os.stat(path).st_mtime_ns // NS_PER_MS


def sync_folder(folder: str) -> None:
    """BLOCKS. Make renames and creations in `folder` survive power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
