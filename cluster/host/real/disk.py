"""Files of the operating system: `Disk`, `DiskFile`, `MappedFile`, `FileRegion` of the seam.

Invariants:

* A `RealFile` stores its size and appends at that position (`pwritev`), so an append is one system call and reads
  need no
  seek. Therefore a path has at most one `RealFile` in one process, and no other process appends to it.
* An append that fails leaves the file at its size before: a partial write is continued; an OSError (ENOSPC, EIO) cuts
  the
  file to its old size and is raised.
* `replace` is atomic and durable: temporary file, fsync, rename, fsync of the folder (B2).
* A descriptor stays open as long as an object uses it: a region that waits to be sent, an fsync on a thread.

Disk faults (`knobs/disk_faults.py`) are checked before each call. `power_loss/tracked_disk.py` is this disk with a
journal of unsynced writes.

What may fail: every call raises the OSError that the system reports.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import shutil
import sys
from collections.abc import Sequence

from ..knobs.disk_faults import DiskFaults
from ..seam import Buffer, DiskFile, MappedFile
from .clock import NS_PER_MS

IOV_MAX = 1024
"""Linux takes so many buffers in one system call (UIO_MAXIOV)."""

TEMPORARY = ".tmp"
_PROBES = 8
_NO_FAULTS = DiskFaults()


class Descriptor:
    """An open file descriptor, closed with the last reference to it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class RealFile:
    """One open file; positions and sizes are bytes."""

    __slots__ = ("_descriptor", "_faults", "_fd", "_path", "_size")

    def __init__(self, path: str, *, create: bool, faults: DiskFaults = _NO_FAULTS) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._path = path
        self._faults = faults
        self._fd = os.open(path, flags, 0o644)
        self._descriptor: Descriptor | None = Descriptor(self._fd)
        self._size = os.fstat(self._fd).st_size

    @property
    def path(self) -> str:
        """The path it was opened with."""
        return self._path

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end in one system call; returns the position they begin at."""
        position = self._size
        wanted = 0
        for part in parts:
            wanted += len(part)
        if self._faults.live:
            self._faults.check("write", self._path)
        try:
            written = 0
            if len(parts) <= IOV_MAX:
                written = os.pwritev(self._fd, parts, position)
            if written < wanted:
                self._write_rest(b"".join(parts), written)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is raised
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
        if self._faults.live:
            self._faults.check("write", self._path)
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], position + written)
        self._size = max(self._size, position + len(view))

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        if self._faults.live:
            self._faults.check("read", self._path)
        data = os.pread(self._fd, size, position)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def region(self, position: int, size: int) -> RealRegion:
        """A range to send; the file stays open until the range was sent, also after `close`."""
        if self._faults.live:
            self._faults.check("read", self._path)
        return RealRegion(self._open_descriptor(), position, size)

    def size(self) -> int:
        """Bytes in the file, appended ones included."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut the file to `size`."""
        if self._faults.live:
            self._faults.check("write", self._path)
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        held = self._open_descriptor()  # else the loop could close it, and another file could get its number
        if self._faults.live:
            self._faults.check("sync", self._path)
        os.fsync(held.fd)

    def close(self) -> None:
        """Close the file; a second call is no error."""
        self._fd = -1
        self._descriptor = None

    def _open_descriptor(self) -> Descriptor:
        held = self._descriptor
        if held is None:
            raise OSError(errno.EBADF, "the file was closed", self._path)
        return held


class RealRegion:
    """A range of a file, sent by `os.sendfile` (see `link.py`)."""

    __slots__ = ("_descriptor", "position", "size")

    def __init__(self, descriptor: Descriptor, position: int, size: int) -> None:
        self._descriptor = descriptor
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def fd(self) -> int:
        """The file's descriptor, open as long as this object exists."""
        return self._descriptor.fd

    def read(self) -> bytes:
        """The bytes of the range; OSError where the file has become shorter."""
        data = os.pread(self.fd, self.size, self.position)
        while len(data) < self.size:
            more = os.pread(self.fd, self.size - len(data), self.position + len(data))
            if not more:
                raise OSError(errno.EIO, f"the file was cut at {self.position + len(data)}")
            data += more
        return data

    def after(self, sent: int) -> RealRegion:
        """The rest of the range after `sent` bytes."""
        return RealRegion(self._descriptor, self.position + sent, self.size - sent)


class RealMap:
    """A file mapped into memory; the mapping ends with the last reference to it."""

    __slots__ = ("_faults", "_map", "_path", "_view")

    def __init__(self, path: str, size: int, *, faults: DiskFaults = _NO_FAULTS) -> None:
        self._path = path
        self._faults = faults
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            there = os.fstat(fd).st_size
            if there < size:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, max(there, size))  # it keeps its own descriptor
        finally:
            os.close(fd)
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
        """Map `size` bytes instead; `size` is at least 1, because an empty file cannot be mapped."""
        if self._faults.live:
            self._faults.check("write", self._path)
        self._view.release()
        self._map.resize(size)
        self._view = memoryview(self._map)

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        if self._faults.live:
            self._faults.check("sync", self._path)
        self._map.flush()

    def close(self) -> None:
        """Unmap the file; a second call is no error."""
        self._view.release()
        self._map.close()


class RealLock:
    """A folder or file that only one process may use at a time (flock)."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        held = Descriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        fcntl.flock(held.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._descriptor: Descriptor | None = held

    def release(self) -> None:
        """Give the lock up; a second call is no error."""
        self._descriptor = None


class RealDisk:
    """The file system of this machine."""

    faults: DiskFaults = _NO_FAULTS
    """The disk faults of this disk; without rules unless the host passes its own."""

    def __init__(self, faults: DiskFaults | None = None) -> None:
        if faults is not None:
            self.faults = faults

    def _check(self, operation: str, path: str) -> None:
        if self.faults.live:
            self.faults.check(operation, path)

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError when it is absent and `create` is False."""
        if create:
            self._check("rename", path)
        return RealFile(path, create=create, faults=self.faults)

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        self._check("rename", path)
        return RealMap(path, size, faults=self.faults)

    def lock(self, path: str) -> RealLock:
        """Lock `path` until `release` or the end of this process; BlockingIOError while it is taken."""
        self._check("rename", path)
        return RealLock(path)

    def read(self, path: str) -> bytes:
        """A whole small file; FileNotFoundError where there is none."""
        self._check("read", path)
        with open(path, "rb") as file:
            return file.read()

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """BLOCKS briefly. Atomically: temporary file, fsync if `durable`, rename, fsync of the folder (B2)."""
        self._check("write", path)
        temporary = path + TEMPORARY
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                self._check("sync", path)
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            sync_folder(os.path.dirname(path) or ".")

    def sync_file(self, path: str) -> None:
        """BLOCKS. Bring a file or folder and its name to stable storage; no error where there is none."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            self._check("sync", path)
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_folder(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        return os.path.exists(path)

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError where there is none."""
        self._check("read", folder)
        return sorted(os.listdir(folder))

    def is_folder(self, path: str) -> bool:
        """True for a folder."""
        return os.path.isdir(path)

    def files_left(self) -> tuple[int, int]:
        """How many numbers are above those of the next files, and the limit of the process."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            return sys.maxsize, 0
        taken: list[int] = []
        try:
            # the lowest free number is given; several, because a connection may have left a lower one a moment ago
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            taken += (os.dup(taken[0]) for _ in range(1, _PROBES))
        except OSError:
            return 0, limit
        finally:
            for number in taken:
                os.close(number)
        return limit - 1 - max(taken), limit

    def space(self, path: str) -> tuple[int, int]:
        """BLOCKS briefly. Bytes of the volume that holds `path`, and those free for us."""
        self._check("read", path)
        volume = os.statvfs(path)
        return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        self._check("rename", path)
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one file system."""
        self._check("rename", source)
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        self._check("rename", path)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        self._check("rename", path)
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
