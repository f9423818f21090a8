"""The journal of one process's unsynced writes: what a power loss would take from its files.

Owns: the model of all files below `roots` (`unsynced.py` has its rules), the journal file that says the same, one
hard link for each file known there, and one shadow copy for each mapped file. All of it lies in the journal's folder,
outside the process, so it survives `kill -9`. `roll_back.py` reads it afterwards.

A second life opens the journal of the first: what was not durable then is not durable now. Files that were created,
removed or renamed without this journal (a kill between a system call and its record, a test that changes the folder)
are recorded when the journal is opened, as changes that are not durable yet.

What may fail: OSError; a root on another file system than the journal cannot be tracked (hard links).
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Generator, Sequence

from ..real.disk import TEMPORARY
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
"""After so many removed names the journal is compacted, which frees the bytes of the removed files."""
_CUT_BYTES = 1024 * 1024


class Journal:
    """The model of one process's files, and the journal file from which it is rebuilt. Callers hold `lock`."""

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

    def close(self) -> None:
        """Close the journal's file; its process ended, or writes no more. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    # ---------------------------------------------------------------- records

    def write(self, record: Record) -> None:
        """Append one record to the journal and apply it to the model."""
        data = record.encode()
        at = self._size + len(data) - len(record.payload)
        if os.write(self._fd, data) != len(data):
            raise OSError(errno.ENOSPC, "the journal of unsynced writes is cut off", self._path)
        self._size += len(data)
        self.model.apply(record._replace(at=at))

    def change(self, folder: FolderState, *names: tuple[str, int | None]) -> None:
        """Record that names in one folder change."""
        self.write(Record(Kind.CHANGE, folder.id, 0, 0, encode_change(names)))
        self._drops += sum(node is None for _, node in names)
        if self._drops > COMPACT_DROPS or self._size > COMPACT_BYTES:
            with open(self._path, "rb") as file:
                self._compact(file.read())

    def _compact(self, journal: bytes) -> None:
        """Rewrite the journal with the records that still matter, and remove links to files that no name leads to."""
        model = self.model
        images = {
            node: [journal[image.journal_at : image.journal_at + image.size] for image in file.images]
            for node, file in model.files.items()
        }
        records = list(model.compacted(images))
        fresh = self._path + TEMPORARY
        with open(fresh, "wb") as file:
            file.writelines(record.encode() for record in records)
        os.replace(fresh, self._path)
        self.close()
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size
        self._drops = 0
        self._place_images(fresh_journal=b"".join(record.encode() for record in records))
        self._forget()

    def _place_images(self, fresh_journal: bytes) -> None:
        """Update the positions of images in the new journal; open files keep their `FileState` objects."""
        compacted = Unsynced.replay(fresh_journal)
        for node, file in self.model.files.items():
            now = compacted.files.get(node)
            if now is not None:
                file.images = [
                    old._replace(journal_at=new.journal_at) for old, new in zip(file.images, now.images, strict=True)
                ]

    def _forget(self) -> None:
        alive = self.model.reachable()
        for node in [node for node in self.model.files if node not in alive]:
            gone = self.model.files.pop(node)
            unlink(os.path.join(self.folder, inode_name(node)))
            if gone.shadow is not None:
                unlink(os.path.join(self.folder, shadow_name(node, gone.shadow)))
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

    def _reconcile(self, folder: FolderState, path: str, inodes: dict[int, int], *, durable: bool) -> None:
        """Make the model agree with the files that are in the folder."""
        found: dict[str, int] = {}
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
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
        names: list[tuple[str, int | None]] = [(name, None) for name in folder.live if name not in found]
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
        """Track the file at `path` from now on; the caller records its name."""
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
                for folder_name in above:
                    below = self.model.folders.get(folder.live.get(folder_name, 0))
                    if below is None:
                        return None
                    folder = below
                return folder, name
        return None

    def folder_at(self, path: str) -> FolderState | None:
        """The folder at `path`: a root or a folder below one; None elsewhere."""
        path = os.path.abspath(path)
        if path in self.model.roots:
            return self.model.folders[self.model.roots[path]]
        at = self.locate(path)
        return None if at is None else self.model.folders.get(at[0].live.get(at[1], 0))

    def file_at(self, path: str) -> FileState | None:
        """The file at `path`, tracked from now on if it was not; None outside of the roots."""
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
        """Record the bytes in [start, end) that may be durable, before they are overwritten or cut."""
        if file.shadow is not None or file.id not in self.model.files:
            return  # deleted: a power loss brings none of its bytes back
        end = min(end, file.guarded)
        for at in range(start, end, _CUT_BYTES):
            data = os.pread(fd, min(_CUT_BYTES, end - at), at)
            if data:
                self.write(Record(Kind.IMAGE, file.id, at, file.images_made, data))

    @contextlib.contextmanager
    def syncing(self, file: FileState, size: int) -> Generator[None]:
        """Around an fsync of the file's `size` bytes: when it succeeds, what was written before it is durable."""
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
                unlink(os.path.join(self.folder, shadow_name(file.id, shadow)))
            elif ok and not late:
                file.last_synced = number
                if size != file.durable_size or file.images:
                    self.write(Record(Kind.FILE_SYNCED, file.id, size, mark, b""))

    def copy_shadow(self, file: FileState, version: int) -> None:
        """Copy the present content of a mapped file to a shadow file."""
        source = os.path.join(self.folder, inode_name(file.id))
        copy_file(source, os.path.join(self.folder, shadow_name(file.id, version)))

    def note_mapped(self, file: FileState) -> None:
        """The file is written through memory from now on: its shadow copy begins with the durable bytes."""
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
        """The bytes of an image in the journal."""
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


def unlink(path: str) -> None:
    """Remove a file; no error where there is none."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
