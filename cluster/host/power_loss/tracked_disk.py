"""A disk that journals what it has not brought to stable storage, so that a power loss can be played.

Owns: the journal (`unsynced.py` has its rules) of everything below `roots`, one hard link for each file known
there, one shadow copy for each mapped file. What lies elsewhere passes untracked. All of it lies in the
journal's folder, outside the process, so it survives `kill -9`; `power_loss.py` reads it then.

A second life opens the journal of the first: what was not durable then is not durable now. Files that
came, went or were renamed without us (a kill between a system call and its record, a test's hand in the
folder) are taken in at opening, as changes that are not durable yet.

Cost: an append costs nothing; an fsync, a creation, a rename one small write; an overwrite a copy of the
durable bytes it replaces; the sync of a mapped file a copy of it. The loop and the threads beside it both call.

What may fail: OSError; a root on another file system than the journal cannot be tracked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Generator, Sequence

from ..knobs.disk_faults import DiskFaults
from ..real.disk import TEMPORARY, RealDisk, RealFile, RealMap
from ..seam import Buffer, DiskFile, MappedFile
from .unsynced import (
    INODES,
    JOURNAL,
    FileState,
    FolderState,
    Kind,
    Record,
    Unsynced,
    encode_change,
    inode_name,
    shadow_name,
)

COMPACT_BYTES = 16 * 1024 * 1024
COMPACT_DROPS = 256
"""Removed names at which the journal is compacted, which lets go of the bytes behind them."""
_CUT_BYTES = 1024 * 1024


class Journal:
    """The model of one process's files, and the file that says the same; every method under one lock."""

    def __init__(self, folder: str, roots: Sequence[str]) -> None:
        os.makedirs(os.path.join(folder, INODES), exist_ok=True)
        self.folder = folder
        self.lock = threading.RLock()
        self._path = os.path.join(folder, JOURNAL)
        self._fd = -1
        self._size = 0
        self._drops = 0
        try:
            with open(self._path, "rb") as file:
                known = file.read()
        except FileNotFoundError:
            known = b""
        self.model = Unsynced.replay(known)
        self._compact(known)
        for root in roots:
            self._adopt_root(os.path.abspath(root), durable=not known)

    # ---------------------------------------------------------------- records

    def write(self, record: Record) -> None:
        """Append one record and take it in."""
        data = record.encode()
        at = self._size + len(data) - len(record.payload)
        if os.write(self._fd, data) != len(data):
            raise OSError(errno.ENOSPC, "the journal of unsynced writes is cut off", self._path)
        self._size += len(data)
        self.model.apply(record._replace(at=at))

    def change(self, folder: FolderState, *names: tuple[str, int | None]) -> None:
        """Names of one folder change."""
        self.write(Record(Kind.CHANGE, folder.id, 0, 0, encode_change(names)))
        self._drops += sum(node is None for _, node in names)
        if self._drops > COMPACT_DROPS or self._size > COMPACT_BYTES:
            with open(self._path, "rb") as file:
                self._compact(file.read())

    def _compact(self, journal: bytes) -> None:
        """Begin the journal anew with what still matters, and let go of files that nothing leads to."""
        model = self.model
        images = {
            node: [journal[one.journal_at : one.journal_at + one.size] for one in file.images]
            for node, file in model.files.items()
        }
        records = list(model.compacted(images))
        fresh = self._path + TEMPORARY
        with open(fresh, "wb") as file:
            file.writelines(record.encode() for record in records)
        os.replace(fresh, self._path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size
        self._drops = 0
        self._place_images(fresh_journal=b"".join(record.encode() for record in records))
        self._forget()

    def _place_images(self, fresh_journal: bytes) -> None:
        """Images lie elsewhere in the new journal; states that open files hold are kept."""
        told = Unsynced.replay(fresh_journal)
        for node, file in self.model.files.items():
            now = told.files.get(node)
            if now is not None:
                file.images = [
                    old._replace(journal_at=new.journal_at)
                    for old, new in zip(file.images, now.images, strict=True)
                ]

    def _forget(self) -> None:
        alive = self.model.reachable()
        for node in [node for node in self.model.files if node not in alive]:
            gone = self.model.files.pop(node)
            _unlink(os.path.join(self.folder, inode_name(node)))
            if gone.shadow is not None:
                _unlink(os.path.join(self.folder, shadow_name(node, gone.shadow)))
        for node in [node for node in self.model.folders if node not in alive]:
            del self.model.folders[node]

    # --------------------------------------------------------------- adoption

    def _adopt_root(self, root: str, *, durable: bool) -> None:
        node = self.model.roots.get(root)
        if node is None:
            node = self.model.next_id
            self.write(Record(Kind.ROOT, node, 0, 0, root.encode()))
            durable = True
        if os.path.isdir(root):
            inodes = {
                os.stat(os.path.join(self.folder, inode_name(known))).st_ino: known
                for known in self.model.files
                if os.path.exists(os.path.join(self.folder, inode_name(known)))
            }
            self._reconcile(self.model.folders[node], root, inodes, durable=durable)

    def _reconcile(
        self, folder: FolderState, path: str, inodes: dict[int, int], *, durable: bool
    ) -> None:
        """Bring the model to what really lies in a folder."""
        found: dict[str, int] = {}
        for entry in sorted(os.scandir(path), key=lambda one: one.name):
            known = folder.live.get(entry.name)
            if entry.is_dir(follow_symlinks=False):
                if known not in self.model.folders:
                    known = self.model.next_id
                    self.write(Record(Kind.FOLDER, known, 0, 0, b""))
            else:
                known = inodes.get(entry.inode())
                if known is None:
                    known = self.adopt(entry.path, durable=durable)
            assert known is not None
            found[entry.name] = known
        names: list[tuple[str, int | None]] = [
            (name, None) for name in folder.live if name not in found
        ]
        names += [(name, node) for name, node in found.items() if folder.live.get(name) != node]
        if names:
            self.change(folder, *names)
            if durable:
                self.write(Record(Kind.FOLDER_SYNCED, folder.id, len(folder.pending), 0, b""))
        for name, node in found.items():
            child = self.model.folders.get(node)
            if child is not None:
                self._reconcile(child, os.path.join(path, name), inodes, durable=durable)

    def adopt(self, path: str, *, durable: bool = False) -> int:
        """Know the file at `path` from now on; the caller says its name."""
        node = self.model.next_id
        os.link(path, os.path.join(self.folder, inode_name(node)))
        self.write(Record(Kind.FILE, node, 0, 0, b""))
        size = os.stat(path).st_size
        if durable and size:
            self.write(Record(Kind.FILE_SYNCED, node, size, 0, b""))
        return node

    def locate(self, path: str) -> tuple[FolderState, str] | None:
        """The folder that holds the last name of `path`, and that name; None outside of the roots."""
        path = os.path.abspath(path)
        for root, node in self.model.roots.items():
            if path.startswith(root) and path[len(root) : len(root) + 1] == "/":
                folder = self.model.folders[node]
                *above, name = path[len(root) + 1 :].split("/")
                for one in above:
                    below = self.model.folders.get(folder.live.get(one, 0))
                    if below is None:
                        return None
                    folder = below
                return folder, name
        return None

    def folder_at(self, path: str) -> FolderState | None:
        """A folder below the roots, or a root."""
        path = os.path.abspath(path)
        if path in self.model.roots:
            return self.model.folders[self.model.roots[path]]
        at = self.locate(path)
        return None if at is None else self.model.folders.get(at[0].live.get(at[1], 0))

    def file_at(self, path: str) -> FileState | None:
        """The file at `path`, taken in where it is new; None outside of the roots."""
        at = self.locate(path)
        if at is None:
            return None
        folder, name = at
        known = self.model.files.get(folder.live.get(name, 0))
        if known is None:
            node = self.adopt(path)
            self.change(folder, (name, node))
            known = self.model.files[node]
        return known

    # ------------------------------------------------------------------ files

    def guard(self, file: FileState, fd: int, start: int, end: int) -> None:
        """Keep an image of what may be durable in [start, end) before it changes."""
        if file.shadow is not None or file.id not in self.model.files:
            return  # deleted: nothing of it comes back
        end = min(end, file.guarded)
        for at in range(start, end, _CUT_BYTES):
            data = os.pread(fd, min(_CUT_BYTES, end - at), at)
            if data:
                self.write(Record(Kind.IMAGE, file.id, at, file.images_made, data))

    @contextlib.contextmanager
    def syncing(self, file: FileState, size: int) -> Generator[None]:
        """The block is an fsync of the file's `size` bytes: what was written before it is durable, if it succeeds."""
        begun = self._begin_sync(file, size)
        ok = False
        try:
            yield
            ok = True
        finally:
            self._end_sync(file, begun, ok=ok)

    def _begin_sync(self, file: FileState, size: int) -> tuple[int, int, int]:
        with self.lock:
            file.syncing.append(size)
            file.syncs_begun += 1
            if file.shadow is not None and file.id in self.model.files:
                version = file.shadow + file.syncs_begun
                self.copy_shadow(file, version)
                return file.syncs_begun, size, version
            return file.syncs_begun, size, file.images_made

    def _end_sync(self, file: FileState, begun: tuple[int, int, int], *, ok: bool) -> None:
        number, size, mark = begun
        with self.lock:
            file.syncing.remove(size)
            late = number <= file.last_synced
            if file.id not in self.model.files:
                return  # deleted meanwhile
            if file.shadow is not None:
                shadow = file.shadow if ok and not late else mark
                if ok and not late:
                    file.last_synced = number
                    self.write(Record(Kind.MAPPED, file.id, mark, 0, b""))
                _unlink(os.path.join(self.folder, shadow_name(file.id, shadow)))
            elif ok and not late:
                file.last_synced = number
                if size != file.durable_size or file.images:
                    self.write(Record(Kind.FILE_SYNCED, file.id, size, mark, b""))

    def copy_shadow(self, file: FileState, version: int) -> None:
        """Copy a mapped file as it is now."""
        source = os.path.join(self.folder, inode_name(file.id))
        copy_file(source, os.path.join(self.folder, shadow_name(file.id, version)))

    def note_mapped(self, file: FileState) -> None:
        """From now on the file is written through memory: its shadow copy begins as what is durable."""
        if file.shadow is not None:
            return
        self.copy_shadow(file, 0)
        with open(os.path.join(self.folder, shadow_name(file.id, 0)), "r+b") as shadow:
            shadow.truncate(file.durable_size)
            for image in reversed(file.images):
                shadow.seek(image.position)
                shadow.write(self.image(image.journal_at, image.size))
        self.write(Record(Kind.MAPPED, file.id, 0, 0, b""))

    def image(self, at: int, size: int) -> bytes:
        """Bytes of an image from the journal."""
        with open(self._path, "rb") as file:
            return os.pread(file.fileno(), size, at)


def copy_file(source: str, target: str) -> None:
    """Copy a file with its holes."""
    with open(source, "rb") as old, open(target, "wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        at = 0
        while at < size:
            try:
                at = os.lseek(old.fileno(), at, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole is left
                return
            end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
            while at < end:
                at += os.copy_file_range(old.fileno(), new.fileno(), end - at, at, at)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


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

    def __init__(
        self, path: str, size: int, state: FileState, journal: Journal, faults: DiskFaults
    ) -> None:
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

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError where it is absent and not to be created."""
        if create:
            self._check("name", path)
        with self._lock:
            if self._journal.locate(path) is None:
                return RealFile(path, create=create, faults=self.faults)
            RealFile(path, create=create).close()
            state = self._journal.file_at(path)
            assert state is not None
            return TrackedFile(path, state, self._journal, self.faults)

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        self._check("name", path)
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
            self.remove(temporary)  # its bytes may be durable: they are not to be overwritten
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
        self._check("name", path)
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
