"""What a power loss leaves of the files that `tracked_disk.py` journalled; called when the process is dead.

    report = lose_power(journal folder, seed=7)

Everything that was brought to stable storage stays as it was. The rest is drawn from the seed, for each file
and folder separately, among everything that a disk may do:

* names: of the changes of a folder since its last fsync a first part survives, and nothing after it;
* a file's size: as at its last fsync, as at the end of the process, or between them (a torn append);
* its pages (512 or 4096 bytes, one size for each loss): each unsynced page is as at the end, or as at the last
  fsync. For an appended page that means zeroes: the file system had recorded the size and not the bytes.

`keep` replaces the random choice: 0.0 loses everything that may be lost, 1.0 nothing.

Afterwards the folder holds what the next start finds, and the journal says that all of it is durable.
What may fail: FileNotFoundError where no journal is (the process did not write it), OSError.
Source: ALICE, CrashMonkey (OSDI '14, '18) for what may be lost in which order.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ..real.disk import TEMPORARY
from .unsynced import (
    INODES,
    JOURNAL,
    FileState,
    Kind,
    Record,
    Unsynced,
    apply_change,
    encode_change,
    inode_name,
    shadow_name,
)

PAGES = (512, 4096)
"""What a disk and what a file system writes at once."""
BLOCK_PAGES = 256
"""Compared at once: almost all pages of an index that was allocated in advance (10 MiB) are those of the disk."""


@dataclass(slots=True)
class PowerLossReport:
    """What was lost; the evidence of the fault."""

    files: int = 0
    """Files that were looked at."""
    torn_files: int = 0
    """Files that are not as they were when the process died."""
    lost_files: int = 0
    """Files that are gone with their names."""
    unsynced_bytes: int = 0
    """Bytes that were not durable."""
    lost_bytes: int = 0
    """Of those, bytes that are gone."""
    unsynced_names: int = 0
    """Creations, renames and removals that were not durable."""
    lost_names: int = 0
    """Of those, how many were undone."""
    page_bytes: int = 0

    def facts(self) -> dict[str, int]:
        """As JSON."""
        return asdict(self)


def lose_power(folder: str, *, seed: int | str, keep: float | None = None) -> PowerLossReport:
    """Roll the files whose journal lies in `folder` back to what survived."""
    with open(os.path.join(folder, JOURNAL), "rb") as file:
        journal = file.read()
    return _Loss(folder, journal, random.Random(f"{seed}"), keep).apply()  # noqa: S311 - not cryptography


class _Loss:
    """One power loss of one process."""

    def __init__(self, folder: str, journal: bytes, rng: random.Random, keep: float | None) -> None:
        self._folder = folder
        self._journal = journal
        self._rng = rng
        self._keep = keep
        self._model = Unsynced.replay(journal)
        self._page = rng.choice(PAGES)
        self._report = PowerLossReport(page_bytes=self._page)

    def apply(self) -> PowerLossReport:
        for node in sorted(self._model.folders):
            self._roll_back_names(node)
        files: dict[int, str] = {}
        folders: list[str] = []
        for root, node in self._model.roots.items():
            folders += self._survivors(root, node, files)
        self._count_lost_files(files)
        for node in sorted(files):
            self._roll_back_file(self._model.files[node])
        self._rebuild(folders, files)
        self._write_new_journal(files)
        return self._report

    # ------------------------------------------------------------------ names

    def _roll_back_names(self, node: int) -> None:
        folder = self._model.folders[node]
        changes = len(folder.pending)
        kept = changes if self._keep == 1.0 else 0
        if self._keep is None and changes:
            kept = self._rng.choice((0, changes, self._rng.randint(0, changes)))
        for change in folder.pending[:kept]:
            apply_change(folder.durable, change)
        self._report.unsynced_names += changes
        self._report.lost_names += changes - kept

    def _survivors(self, path: str, node: int, files: dict[int, str]) -> Iterator[str]:
        """Folders that are left below `path`, itself first; files go into `files`."""
        yield path
        for name, child in sorted(self._model.folders[node].durable.items()):
            below = os.path.join(path, name)
            if child in self._model.folders:
                yield from self._survivors(below, child, files)
            elif os.path.exists(self._inode(child)):
                files[child] = below

    def _count_lost_files(self, files: dict[int, str]) -> None:
        """Files that had a name and will have none."""
        named = {node for folder in self._model.folders.values() for node in folder.live.values()}
        for node in named & self._model.files.keys() - files.keys():
            size = os.stat(self._inode(node)).st_size if os.path.exists(self._inode(node)) else 0
            self._report.lost_files += 1
            self._report.unsynced_bytes += size
            self._report.lost_bytes += size

    # ------------------------------------------------------------------ bytes

    def _roll_back_file(self, file: FileState) -> None:
        self._report.files += 1
        with contextlib.ExitStack() as opened:
            live = os.open(self._inode(file.id), os.O_RDWR | os.O_CLOEXEC)
            opened.callback(os.close, live)
            shadow = self._open_shadow(file)
            if shadow is not None:
                opened.callback(os.close, shadow)
            lost = self._tear(file, live, shadow)
        self._report.lost_bytes += lost
        self._report.torn_files += lost > 0

    def _tear(self, file: FileState, live: int, shadow: int | None) -> int:
        """Change one file to what survived; returns how many of its bytes were lost."""
        size = os.fstat(live).st_size
        durable = file.durable_size if shadow is None else os.fstat(shadow).st_size
        survival = self._draw_survival()
        new_size = self._draw_size(durable, size, survival)
        lost = abs(size - new_size)
        self._report.unsynced_bytes += abs(size - durable)
        for start, dirty_end in self._dirty(file, shadow, durable, size):
            end = min(dirty_end, new_size)
            first, block = start - start % self._page, BLOCK_PAGES * self._page
            for block_at in range(first, end, block):
                block_end = min(block_at + block, end)
                changed = self._is_changed(file, live, shadow, max(block_at, start), max(block_end, start), durable)
                for at in range(block_at, block_end, self._page):
                    begin, stop = max(at, start), min(at + self._page, end)
                    if begin < stop and self._rng.random() >= survival and changed:
                        lost += self._take_back(file, live, shadow, begin, stop, durable)
        if new_size > size:  # what was cut off comes back
            old = self._durable_bytes(file, live, shadow, size, new_size, durable)
            os.pwrite(live, old, size)
        os.ftruncate(live, new_size)
        return lost

    def _draw_survival(self) -> float:
        if self._keep is not None:
            return self._keep
        return self._rng.choice((0.0, 1.0, self._rng.random()))

    def _draw_size(self, durable: int, size: int, survival: float) -> int:
        if self._keep is not None:
            return size if self._rng.random() < survival else durable
        if size <= durable:
            return self._rng.choice((durable, size))
        return self._rng.choice((durable, size, self._rng.randint(durable, size)))

    def _dirty(self, file: FileState, shadow: int | None, durable: int, size: int) -> Iterator[tuple[int, int]]:
        """Ranges below both ends, and beyond the durable one, whose bytes may not have been written."""
        common = min(durable, size)
        if shadow is None:
            ranges = sorted((image.position, min(image.end, common)) for image in file.images)
            at = 0
            for start, end in ranges:
                if max(start, at) < end:
                    yield max(start, at), end
                    at = end
        else:
            yield 0, common
        if size > durable:
            yield durable, size

    def _is_changed(self, file: FileState, live: int, shadow: int | None, start: int, end: int, durable: int) -> bool:
        """Whether any byte of a block differs from the durable one."""
        return self._durable_bytes(file, live, shadow, start, end, durable) != os.pread(live, end - start, start)

    def _take_back(self, file: FileState, live: int, shadow: int | None, start: int, end: int, durable: int) -> int:
        """Restore the durable bytes of a page, zeroes where there were none; returns how many bytes that changed."""
        old = self._durable_bytes(file, live, shadow, start, end, durable)
        now = os.pread(live, end - start, start)
        if old == now:
            return 0
        os.pwrite(live, old, start)
        return sum(a != b for a, b in zip(old, now, strict=True))

    def _durable_bytes(
        self, file: FileState, live: int, shadow: int | None, start: int, end: int, durable: int
    ) -> bytes:
        source = live if shadow is None else shadow
        upto = min(end, durable)
        data = bytearray(os.pread(source, max(0, upto - start), start))
        data += bytes(end - start - len(data))
        if shadow is None:
            for image in reversed(file.images):  # the oldest is the durable one
                begin, stop = max(image.position, start), min(image.end, upto)
                if begin < stop:
                    at = image.journal_at + begin - image.position
                    data[begin - start : stop - start] = self._journal[at : at + stop - begin]
        return bytes(data)

    def _open_shadow(self, file: FileState) -> int | None:
        if file.shadow is None:
            return None
        path = os.path.join(self._folder, shadow_name(file.id, file.shadow))
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def _inode(self, node: int) -> str:
        return os.path.join(self._folder, inode_name(node))

    # ------------------------------------------------------------------- tree

    def _rebuild(self, folders: list[str], files: dict[int, str]) -> None:
        """Make the tree have exactly these folders and files."""
        for root in self._model.roots:
            if os.path.isdir(root):
                shutil.rmtree(root)
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        for node, path in files.items():
            os.link(self._inode(node), path)

    def _write_new_journal(self, files: dict[int, str]) -> None:
        """Write a journal that says that all of these files are durable."""
        records: list[Record] = []
        for node in sorted(files):
            records.append(Record(Kind.FILE, node, 0, 0, b""))
            file, size = self._model.files[node], os.stat(self._inode(node)).st_size
            records.append(Record(Kind.FILE_SYNCED, node, size, 0, b""))
            if file.shadow is not None:
                copy = os.path.join(self._folder, shadow_name(node, file.shadow))
                shutil.copyfile(self._inode(node), copy)
                records.append(Record(Kind.MAPPED, node, file.shadow, 0, b""))
        roots = {node: path for path, node in self._model.roots.items()}
        alive = self._alive_folders(list(roots))
        for node in alive:
            kind, path = (Kind.ROOT, roots[node].encode()) if node in roots else (Kind.FOLDER, b"")
            records.append(Record(kind, node, 0, 0, path))
        for node in alive:
            names = {
                name: child
                for name, child in self._model.folders[node].durable.items()
                if child in alive or child in files
            }
            if names:
                records.append(Record(Kind.CHANGE, node, 0, 0, encode_change(names.items())))
                records.append(Record(Kind.FOLDER_SYNCED, node, 1, 0, b""))
        fresh = os.path.join(self._folder, JOURNAL + TEMPORARY)
        with open(fresh, "wb") as file_:
            file_.writelines(record.encode() for record in records)
        os.replace(fresh, os.path.join(self._folder, JOURNAL))
        self._sweep(files)

    def _alive_folders(self, roots: list[int]) -> list[int]:
        alive: list[int] = []
        queue = roots
        while queue:
            node = queue.pop()
            alive.append(node)
            children = self._model.folders[node].durable.values()
            queue += [child for child in children if child in self._model.folders]
        return sorted(alive)

    def _sweep(self, files: dict[int, str]) -> None:
        kept = {inode_name(node).partition("/")[2] for node in files}
        for name in os.listdir(os.path.join(self._folder, INODES)):
            if name not in kept:
                os.unlink(os.path.join(self._folder, INODES, name))
