"""What a disk holds for certain, and what it would lose with the power: the model and its journal.

The model numbers every file and folder below its roots (a node number, like an inode number):

    folder   durable names, and the changes of names since its last fsync, in order
    file     durable size, and an *image* of every durable byte that was overwritten or cut since
    mapped   a file written through memory: a shadow copy, made at each sync, is what is durable

Rules, the strictest that POSIX allows: bytes are durable by an fsync of their file, names by an fsync of
their folder; changes of one folder become durable in order. Appends need no entry: they lie beyond the
durable size. Images are written *before* the change that they undo, everything else after the fact: a
process that is killed in between has acknowledged nothing yet, so both outcomes are allowed.

The journal is a file of records (`_HEAD`, then a payload), appended by one write each, so it survives
`kill -9` of its writer; a cut-off last record is passed over. `Unsynced.replay` reads it, `compacted` says the
same in fewer records. `journal.py` writes it for `tracked_disk.py`; `roll_back.py` applies a power loss.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

_HEAD = struct.Struct(">BIQQI")
UNSYNCED = "unsynced"
"""Folder of the journal, below a host's own."""
JOURNAL = "journal"
INODES = "inodes"
"""Folder with a hard link for each known file: a power loss may bring a removed file back."""

Change = tuple[tuple[str, int | None], ...]
"""Names of one folder, each with the node that it refers to from now on; None: the name was removed."""


class Kind(IntEnum):
    """The meaning of a record; `id` is a node, `a` and `b` are numbers."""

    ROOT = 1  # the folder `id` is the root at the path in the payload
    FILE = 2  # the file `id` is known
    FOLDER = 3  # the folder `id` is known
    CHANGE = 4  # names of folder `id` change as the payload says (JSON)
    FOLDER_SYNCED = 5  # the first `a` pending changes of folder `id` are durable
    FILE_SYNCED = 6  # `a` bytes of file `id` are durable, images before the number `b` are void
    IMAGE = 7  # durable bytes of file `id` from `a` on were these; the image's number is `b`
    MAPPED = 8  # shadow copy number `a` is what is durable of file `id`


class Record(NamedTuple):
    """One record of the journal; `at` is where its payload lies in the file."""

    kind: Kind
    id: int
    a: int
    b: int
    payload: bytes
    at: int = 0

    def encode(self) -> bytes:
        """The record as bytes."""
        return _HEAD.pack(self.kind, self.id, self.a, self.b, len(self.payload)) + self.payload


class Image(NamedTuple):
    """Durable bytes of a file before a change: their place in the file and in the journal."""

    number: int
    position: int
    size: int
    journal_at: int

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.position + self.size


@dataclass(slots=True)
class FileState:
    """What is known of one file."""

    id: int
    durable_size: int = 0
    images: list[Image] = field(default_factory=list[Image])
    images_made: int = 0
    shadow: int | None = None
    """Number of the shadow copy, of a file that is or was mapped."""
    syncing: list[int] = field(default_factory=list[int])
    """Sizes at the beginning of the fsyncs under way (of the writer only)."""
    syncs_begun: int = 0
    last_synced: int = 0

    @property
    def guarded(self) -> int:
        """Bytes below it may be durable, now or when an fsync under way has ended."""
        return max(self.durable_size, *self.syncing) if self.syncing else self.durable_size


@dataclass(slots=True)
class FolderState:
    """What is known of one folder."""

    id: int
    durable: dict[str, int] = field(default_factory=dict[str, int])
    live: dict[str, int] = field(default_factory=dict[str, int])
    pending: list[Change] = field(default_factory=list[Change])
    dropped: int = 0
    """Changes made durable so far: an fsync counts from when it began."""


class Unsynced:
    """The model; `apply` takes records in the order of the journal."""

    def __init__(self) -> None:
        self.roots: dict[str, int] = {}
        self.files: dict[int, FileState] = {}
        self.folders: dict[int, FolderState] = {}
        self.next_id = 1
        self._apply = {
            Kind.ROOT: self._root,
            Kind.FILE: self._file,
            Kind.FOLDER: self._folder,
            Kind.CHANGE: self._change,
            Kind.FOLDER_SYNCED: self._folder_synced,
            Kind.FILE_SYNCED: self._file_synced,
            Kind.IMAGE: self._image,
            Kind.MAPPED: self._mapped,
        }

    @classmethod
    def replay(cls, journal: bytes) -> Unsynced:
        """The model after all records in a journal's bytes."""
        model = cls()
        for record in read_records(journal):
            model.apply(record)
        return model

    def apply(self, record: Record) -> None:
        """Change the model as one record says."""
        self.next_id = max(self.next_id, record.id + 1)
        self._apply[record.kind](record)

    def _root(self, record: Record) -> None:
        self.folders.setdefault(record.id, FolderState(record.id))
        self.roots[record.payload.decode()] = record.id

    def _file(self, record: Record) -> None:
        self.files[record.id] = FileState(record.id)

    def _folder(self, record: Record) -> None:
        self.folders.setdefault(record.id, FolderState(record.id))

    def _change(self, record: Record) -> None:
        folder = self.folders[record.id]
        change = decode_change(record.payload)
        folder.pending.append(change)
        apply_change(folder.live, change)

    def _folder_synced(self, record: Record) -> None:
        folder = self.folders[record.id]
        count = min(record.a, len(folder.pending))
        for change in folder.pending[:count]:
            apply_change(folder.durable, change)
        del folder.pending[:count]
        folder.dropped += count

    def _file_synced(self, record: Record) -> None:
        file = self.files[record.id]
        file.durable_size = record.a
        file.images = [image for image in file.images if image.number >= record.b]
        file.images_made = max(file.images_made, record.b)

    def _image(self, record: Record) -> None:
        file = self.files[record.id]
        file.images.append(Image(record.b, record.a, len(record.payload), record.at))
        file.images_made = record.b + 1

    def _mapped(self, record: Record) -> None:
        file = self.files[record.id]
        file.shadow = record.a
        file.images = []

    def reachable(self) -> set[int]:
        """Numbers of all nodes that can be reached from a root, now or after a power loss."""
        seen: set[int] = set()
        queue = list(self.roots.values())
        while queue:
            node = queue.pop()
            if node in seen:
                continue
            seen.add(node)
            folder = self.folders.get(node)
            if folder is not None:
                queue += folder.durable.values()
                queue += folder.live.values()
                queue += [to for change in folder.pending for _, to in change if to is not None]
        return seen

    def compacted(self, image_bytes: dict[int, list[bytes]]) -> Iterator[Record]:
        """Records that lead to this model, unreachable nodes left out; `image_bytes` by file, as `images`."""
        alive = self.reachable()
        for path, node in self.roots.items():
            yield Record(Kind.ROOT, node, 0, 0, path.encode())
        for node, file in self.files.items():
            if node not in alive:
                continue
            yield Record(Kind.FILE, node, 0, 0, b"")
            for image, data in zip(file.images, image_bytes.get(node, []), strict=True):
                yield Record(Kind.IMAGE, node, image.position, image.number, data)
            yield Record(Kind.FILE_SYNCED, node, file.durable_size, 0, b"")
            if file.shadow is not None:
                yield Record(Kind.MAPPED, node, file.shadow, 0, b"")
        for node in self.folders:
            if node in alive and node not in self.roots.values():
                yield Record(Kind.FOLDER, node, 0, 0, b"")
        for node, folder in self.folders.items():
            if node not in alive:
                continue
            if folder.durable:
                yield Record(Kind.CHANGE, node, 0, 0, encode_change(folder.durable.items()))
                yield Record(Kind.FOLDER_SYNCED, node, 1, 0, b"")
            for change in folder.pending:
                yield Record(Kind.CHANGE, node, 0, 0, encode_change(change))


def read_records(journal: bytes) -> Iterator[Record]:
    """The whole records in a journal's bytes."""
    at = 0
    while at + _HEAD.size <= len(journal):
        kind, node, a, b, size = _HEAD.unpack_from(journal, at)
        begin = at + _HEAD.size
        if begin + size > len(journal):
            return
        yield Record(Kind(kind), node, a, b, journal[begin : begin + size], begin)
        at = begin + size


def apply_change(names: dict[str, int], change: Change) -> None:
    """Apply a change to the names of a folder."""
    for name, node in change:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def encode_change(change: Iterable[tuple[str, int | None]]) -> bytes:
    """A change as a record's payload."""
    return json.dumps(list(change), separators=(",", ":")).encode()


def decode_change(payload: bytes) -> Change:
    """A record's payload as a change."""
    rows: list[Any] = json.loads(payload)
    return tuple((str(name), node) for name, node in rows)


def inode_name(node: int) -> str:
    """Name of a file's hard link below the journal's folder."""
    return f"{INODES}/{node}"


def shadow_name(node: int, version: int) -> str:
    """Name of a mapped file's shadow copy below the journal's folder."""
    return f"shadow-{node}-{version}"
