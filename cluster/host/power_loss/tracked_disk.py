"""A disk that journals what is not on stable storage yet, so that a power loss can be simulated exactly.

Every write, creation, rename and fsync below `roots` passes through here and is recorded in the journal
(`journal.py`). Files elsewhere are not tracked.

Cost: an append costs nothing; an fsync, a creation, a rename one small write; an overwrite a copy of the
durable bytes it replaces; the sync of a mapped file a copy of it. The loop and the threads beside it both call.

What may fail: OSError; a rename between two folders is refused (EXDEV).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from ..knobs.disk_faults import DiskFaults
from ..real.disk import TEMPORARY, RealDisk, RealFile, RealMap
from ..seam import Buffer, DiskFile, MappedFile
from .journal import Journal
from .unsynced import FileState, FolderState, Kind, Record


class TrackedFile(RealFile):
    """A file whose durable bytes are known."""

    __slots__ = ("_journal", "_state")

    def __init__(self, path: str, state: FileState, journal: Journal, faults: DiskFaults) -> None:
        super().__init__(path, create=False, faults=faults)
        self._state = state
        self._journal = journal

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        with self._journal.lock:
            self._journal.guard(self._state, self._fd, position, position + len(data))
            super().write_at(position, data)

    def truncate(self, size: int) -> None:
        """Cut the file to `size`."""
        with self._journal.lock:
            self._journal.guard(self._state, self._fd, size, self._size)
            super().truncate(size)

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage, and note that it is."""
        with self._journal.syncing(self._state, self._size):
            super().sync()


class TrackedMap(RealMap):
    """A mapped file whose durable bytes are in its shadow copy."""

    __slots__ = ("_journal", "_state")

    def __init__(self, path: str, size: int, state: FileState, journal: Journal, faults: DiskFaults) -> None:
        super().__init__(path, size, faults=faults)
        self._state = state
        self._journal = journal

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage, and note that it is."""
        with self._journal.syncing(self._state, 0):
            super().sync()


class TrackedDisk(RealDisk):
    """The file system of this machine, journalled below `roots`."""

    def __init__(self, folder: str, roots: Sequence[str], faults: DiskFaults | None = None) -> None:
        super().__init__(faults)
        self._journal = Journal(folder, roots)
        self._lock = self._journal.lock

    def close(self) -> None:
        """Close the journal; files that are open stay open, and may not be changed any more. Idempotent."""
        self._journal.close()

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError when it is absent and `create` is False."""
        if create:
            self._check("rename", path)
        with self._lock:
            if self._journal.locate(path) is None:
                return RealFile(path, create=create, faults=self.faults)
            RealFile(path, create=create).close()
            state = self._journal.file_at(path)
            assert state is not None
            return TrackedFile(path, state, self._journal, self.faults)

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        self._check("rename", path)
        with self._lock:
            if self._journal.locate(path) is None:
                return RealMap(path, size, faults=self.faults)
            RealFile(path, create=True).close()
            state = self._journal.file_at(path)
            assert state is not None
            self._journal.note_mapped(state)
            return TrackedMap(path, size, state, self._journal, self.faults)

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """BLOCKS briefly. Atomically: temporary file, fsync if `durable`, rename, fsync of the folder (B2)."""
        with self._lock:
            at = self._journal.locate(path)
            if at is None:
                super().replace(path, data, durable=durable)
                return
            temporary = path + TEMPORARY
            self.remove(temporary)  # its bytes may be durable: they must not be overwritten
            file = self.open(temporary)
            try:
                file.append((data,))
                if durable:
                    file.sync()
            finally:
                file.close()
            self.rename(temporary, path)
            if durable:
                self._sync_folder(at[0], os.path.dirname(path))

    def sync_file(self, path: str) -> None:
        """BLOCKS. Bring a file or folder and its name to stable storage; no error where there is none."""
        with self._lock:
            at = self._journal.locate(path)
            folder = self._journal.folder_at(path)
        if at is None and folder is None:
            super().sync_file(path)
            return
        if folder is not None:
            self._sync_folder(folder, path)
        elif os.path.exists(path):
            file = self.open(path, create=False)
            try:
                file.sync()
            finally:
                file.close()
        else:
            return
        if at is not None:
            self._sync_folder(at[0], os.path.dirname(path))

    def _sync_folder(self, folder: FolderState, path: str) -> None:
        self._check("sync", path)
        with self._lock:
            upto = folder.dropped + len(folder.pending)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        with self._lock:
            count = upto - folder.dropped
            if count > 0 and folder.id in self._journal.model.folders:
                self._journal.write(Record(Kind.FOLDER_SYNCED, folder.id, count, 0, b""))

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        self._check("rename", path)
        with self._lock:
            if os.path.isdir(path):
                return
            parent = os.path.dirname(os.path.abspath(path))
            if not os.path.isdir(parent):
                self.make_folder(parent)
            os.mkdir(path)
            at = self._journal.locate(path)
            if at is not None:
                node = self._journal.model.next_id
                self._journal.write(Record(Kind.FOLDER, node, 0, 0, b""))
                self._journal.change(at[0], (at[1], node))

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one folder; EXDEV between two."""
        with self._lock:
            old, new = self._journal.locate(source), self._journal.locate(target)
            if old is not None and (new is None or old[0] is not new[0]):
                raise OSError(errno.EXDEV, "renaming between folders is not tracked", source)
            super().rename(source, target)
            if old is not None and new is not None:
                folder, name = old
                self._journal.change(folder, (name, None), (new[1], folder.live.get(name)))

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        with self._lock:
            super().remove(path)
            at = self._journal.locate(path)
            if at is not None and at[1] in at[0].live:
                self._journal.change(at[0], (at[1], None))

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        with self._lock:
            folder, at = self._journal.folder_at(path), self._journal.locate(path)
            super().remove_folder(path)
            if folder is not None:
                self._forget_below(folder)
            if at is not None and at[1] in at[0].live:
                self._journal.change(at[0], (at[1], None))

    def _forget_below(self, folder: FolderState) -> None:
        for node in list(folder.live.values()):
            if node in self._journal.model.folders:
                self._forget_below(self._journal.model.folders[node])
        if folder.live:
            self._journal.change(folder, *((name, None) for name in list(folder.live)))
