"""A disk in memory that records which writes are durable: `Disk` of the seam for simulated machines.

Owns: the names and the bytes of one machine's file system, and which of them are **not durable yet**:

* Data: every file stores, for each write since its last fsync, how to undo that write. A killed process loses no
  write, because the page cache belongs to the machine. After a power loss a prefix of the unsynced writes survives,
  which the seed draws; the first lost write may be torn (some of its bytes are there, or as many zeroes).
* A mapped file has no single writes: each 4096-byte page has its old or its new content.
* Names: creations, renames and removals are a journal that is applied in order; any fsync makes all of it durable
  (ext4's ordered mode). After a power loss a prefix of the changes that were not durable survives.

So `replace(durable=False)` may leave, after a power loss, the old content, the new content, or the new name with a torn
file; `sync_file` and `replace(durable=True)` never do.

`survivor` returns the disk of the next incarnation: a copy, so that code of the old incarnation cannot change it.

Disk errors (`host/knobs/disk_faults.py`) fail the calls that they fail on a real disk, and end with the incarnation;
`inode.py` says what an fsync that failed leaves behind. A delay is refused: no call here takes time.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence

from ..knobs.disk_faults import DiskFaults
from ..seam import Buffer
from .inode import Inode
from .names import Change, FileNames, PathTable

TEMPORARY = ".tmp"


class SimRegion:
    """A range of a file to be sent; `FileRegion` of the seam. `read` returns the bytes at the time of the read."""

    __slots__ = ("_inode", "_position", "_size")

    def __init__(self, inode: Inode, position: int, size: int) -> None:
        self._inode, self._position, self._size = inode, position, size

    @property
    def size(self) -> int:
        """Bytes in the range."""
        return self._size

    def __len__(self) -> int:
        return self._size

    def read(self) -> bytes:
        """The bytes of the range."""
        return bytes(self._inode.data[self._position : self._position + self._size])


class SimMap:
    """A file mapped into memory; `MappedFile` of the seam."""

    __slots__ = ("_disk", "_inode", "_path", "_view")

    def __init__(self, disk: SimDisk, path: str, inode: Inode, size: int) -> None:
        self._disk, self._path, self._inode = disk, path, inode
        if inode.baseline is None:
            inode.baseline = inode.stable()
            inode.undo.clear()
        if size > len(inode.data):
            inode.resize(size)
        self._view = memoryview(inode.data)

    @property
    def view(self) -> memoryview:
        """The whole mapping, writable."""
        return self._view

    @property
    def size(self) -> int:
        """Bytes mapped."""
        return len(self._inode.data)

    def resize(self, size: int) -> None:
        """Map `size` bytes instead."""
        self._disk.check("write", self._path)
        self._inode.resize(size)
        self._view = memoryview(self._inode.data)

    def sync(self) -> None:
        """BLOCKS. Make everything written durable."""
        self._disk.synced(self._path, self._inode)

    def close(self) -> None:
        """Unmap the file; a second call is no error."""


class SimLock:
    """An exclusive lock on a file; `Lock` of the seam. It ends with its incarnation."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        """Give the lock up; a second call is no error."""
        self._disk.locks.discard(self._path)


class SimFile:
    """One open file; `DiskFile` of the seam."""

    __slots__ = ("_disk", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk, self._path, self._inode = disk, path, inode

    @property
    def path(self) -> str:
        """The path it was opened with."""
        return self._path

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end; OSError and nothing written when the disk refuses."""
        self._disk.check("write", self._path)
        inode = self._inode
        at = len(inode.data)
        inode.write(at, parts[0] if len(parts) == 1 else b"".join(parts))
        inode.modified_ms = self._disk.now_ms()
        return at

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        self._disk.check("write", self._path)
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk.now_ms()

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        self._disk.check_read(self._path)
        return bytes(self._inode.data[position : position + size])

    def region(self, position: int, size: int) -> SimRegion:
        """A range to be sent."""
        self._disk.check_read(self._path)
        return SimRegion(self._inode, position, size)

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        """Truncate or extend the file to `size`."""
        self._disk.check("write", self._path)
        self._inode.resize(size)
        self._inode.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        """BLOCKS. Make everything written durable, and the file's name."""
        self._disk.synced(self._path, self._inode)

    def close(self) -> None:
        """Close the file; a second call is no error."""


class SimDisk:
    """One machine's file system, seen by one incarnation."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.refuses: int | None = None
        """The errno (EIO, ENOSPC) that every write raises while a fault lasts; 0: none."""
        self.faults = DiskFaults()
        """The disk errors that are armed in this incarnation."""
        self.locks: set[str] = set()
        self._names = FileNames()
        self._stable = FileNames()
        self._journal: list[Change] = []

    # ------------------------------------------------------------ durability

    def check(self, operation: str, path: str) -> None:
        """OSError while a fault makes the disk refuse writes, or when a disk error is due."""
        if self.refuses is not None:
            raise OSError(self.refuses, os.strerror(self.refuses))
        if self.faults.live:
            self.faults.check(operation, path)

    def check_read(self, path: str) -> None:
        """OSError when a disk error of reads is due."""
        if self.faults.live:
            self.faults.check("read", path)

    def synced(self, path: str, inode: Inode) -> None:
        """An fsync: this file's bytes, and all names so far, are durable."""
        try:
            self.check("sync", path)
        except OSError:
            inode.sync_failed()
            raise
        inode.sync()
        self._commit(len(self._journal))

    def _commit(self, count: int) -> None:
        for change in self._journal[:count]:
            change.apply(self._stable)
        del self._journal[:count]

    def _change(self, change: Change) -> None:
        change.apply(self._names)
        self._journal.append(change)

    def survivor(self, rng: random.Random | None = None) -> SimDisk:
        """The disk of the next incarnation: all writes, or after a power loss those that `rng` chooses."""
        twin = SimDisk(self.now_ms)
        twin.refuses = self.refuses
        if rng is not None:
            survived = FileNames()
            survived.files = PathTable(self._stable.files.items())
            survived.folders = PathTable(self._stable.folders.items())
            for change in self._journal[: rng.randrange(len(self._journal) + 1)]:
                change.apply(survived)
            survived.files = PathTable(
                (path, Inode(inode.after_power_loss(rng), inode.modified_ms)) for path, inode in survived.files.items()
            )
            twin._names = survived
            twin._stable.files = PathTable(survived.files.items())
            twin._stable.folders = PathTable(survived.folders.items())
            return twin
        copies: dict[Inode, Inode] = {}  # the journal may hold an earlier name of a file

        def copy(inode: Inode) -> Inode:
            if inode not in copies:
                copies[inode] = inode.copy()
            return copies[inode]

        for half, names in ((twin._names, self._names), (twin._stable, self._stable)):
            half.folders = PathTable(names.folders.items())
            half.files = PathTable((path, copy(inode)) for path, inode in names.files.items())
        twin._journal = [
            change._replace(target=copy(change.target)) if isinstance(change.target, Inode) else change
            for change in self._journal
        ]
        return twin

    # ------------------------------------------------------------------ files

    def open(self, path: str, *, create: bool = True) -> SimFile:
        """Open for reading and writing; FileNotFoundError when it is absent and `create` is False."""
        inode = self._names.files.get(path)
        if inode is None:
            if not create:
                raise _absent(path)
            inode = self._create(path)
        return SimFile(self, path, inode)

    def map(self, path: str, size: int) -> SimMap:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        inode = self._names.files.get(path)
        if inode is None:
            inode = self._create(path)
        return SimMap(self, path, inode, size)

    def lock(self, path: str) -> SimLock:
        """Lock the file `path` until the release or the end of the process; BlockingIOError while it is locked."""
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        if path not in self._names.files:
            self._create(path)
        self.locks.add(path)
        return SimLock(self, path)

    def _create(self, path: str) -> Inode:
        self.check("rename", path)
        return self._link(path)

    def _link(self, path: str) -> Inode:
        folder = path.rpartition("/")[0]
        if folder and folder not in self._names.folders:
            raise _absent(path)
        if path in self._names.folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        inode = Inode(modified_ms=self.now_ms())
        self._change(Change("link", path, inode))
        return inode

    def read(self, path: str) -> bytes:
        """A whole small file; FileNotFoundError where there is none."""
        inode = self._names.files.get(path)
        if inode is None:
            raise _absent(path)
        self.check_read(path)
        return bytes(inode.data)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace the file atomically, by way of a temporary file; the head says what survives a power loss."""
        temporary = path + TEMPORARY
        self.check("write", path)
        inode = self._link(temporary)
        inode.write(0, data)
        if durable:
            self.synced(path, inode)
        self._change(Change("rename", temporary, path))
        if durable:
            self._commit(len(self._journal))

    def sync_file(self, path: str) -> None:
        """BLOCKS. Make a file or a folder, and its name, durable; no error where there is none."""
        inode = self._names.files.get(path)
        if inode is not None:
            self.synced(path, inode)
        elif path in self._names.folders:
            self.check("sync", path)
            self._commit(len(self._journal))

    # ------------------------------------------------------------------ names

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        return path in self._names.files or path in self._names.folders

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError where there is none."""
        if folder not in self._names.folders:
            raise _absent(folder)
        return sorted([*self._names.files.names_in(folder), *self._names.folders.names_in(folder)])

    def contents(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """Yield every file whose path begins with `folder`, with what a reader would find in it."""
        for path, inode in self._names.files.items():
            if path.startswith(folder):
                yield path, bytes(inode.data)

    def is_folder(self, path: str) -> bool:
        """True for a folder."""
        return path in self._names.folders

    def files_left(self) -> tuple[int, int]:
        """No bound."""
        return sys.maxsize, 0

    def space(self, path: str) -> tuple[int, int]:
        """Unknown: memory has no volumes."""
        del path
        return -1, -1

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        if path not in self._names.folders:
            self.check("rename", path)
            self._change(Change("make", path))

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; FileNotFoundError where there is no `source`."""
        if not self.exists(source):
            raise _absent(source)
        self.check("rename", source)
        self._change(Change("rename", source, target))

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        if path in self._names.files:
            self.check("rename", path)
            self._change(Change("unlink", path))

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        if path in self._names.folders:
            self.check("rename", path)
            self._change(Change("remove", path))

    def wipe(self, folder: str) -> int:
        """Another disk is mounted at `folder`: nothing of it is left; returns how many files were in it."""
        removed = sum(path.startswith(f"{folder}/") for path, _ in self._names.files.items())
        self._change(Change("remove", folder))
        self._commit(len(self._journal))
        return removed

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change."""
        inode = self._names.files.get(path)
        if inode is not None:
            return inode.modified_ms
        if path in self._names.folders:
            return 0
        raise _absent(path)


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
