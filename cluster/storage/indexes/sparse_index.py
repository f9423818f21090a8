"""What the two sparse indexes of a segment have in common (B3): fixed-size entries in a mapped file.

Owns: the file and its mapping. Life of a file, as Kafka's:

    new, empty        0 bytes (or none: an empty segment's index may be absent)
    being written     mapped and preallocated to `segment.index.bytes` at the first append; entries
                      beyond `len` are zeroes, or what a truncation left behind
    sealed            trimmed to its entries, at roll and at a clean close; mapped again when looked up

A crash leaves the preallocated form. Only the segments from the recovery point on can be found like that,
and recovery tells those indexes anew: what lies below was trimmed and fsynced before the point moved.

Invariants: an entry is complete before `len` counts it, so a look-up on another thread sees whole
entries; such a look-up that meets a mapping just given up goes again on a new one. What is held of sealed
indexes an `IndexMaps` keeps, which gives the oldest up: memory and descriptors stay bounded however many
segments there are.

What may fail: OSError; CorruptLogError from `load`. Source: Kafka's `AbstractIndex`, `LazyIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from ...errors import CorruptLogError
from ...host.seam import Disk, MappedFile

RELATIVE_OFFSET_MAX = 2**31 - 1
MAPS_KEPT = 2048
"""Mappings of sealed indexes that one broker keeps; each has a descriptor."""

SMALL_BYTES = 1024
SMALL_KEPT = 32_768
"""A sealed index no larger than that is read instead of mapped; a broker keeps so many of them (32 MiB)."""

_NO_VIEW = memoryview(b"")
_ATTEMPTS = 4
"""A mapping ends at a roll, a truncation, a close; not so often that four look-ups meet one each."""

T = TypeVar("T")


class _Ring:
    """Keeps the newest; the oldest give way. Threads may race here: at worst one is kept on longer."""

    __slots__ = ("_at", "_kept", "_ring")

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._ring: list[SparseIndex] = []
        self._at = 0

    def keep(self, index: SparseIndex) -> None:
        if len(self._ring) < self._kept:
            self._ring.append(index)
            return
        at = self._at % self._kept
        self._at = at + 1
        oldest, self._ring[at] = self._ring[at], index
        if oldest is not index:
            oldest.give_up_map()


class IndexMaps:
    """What one broker holds of its sealed indexes: mappings, and small ones as they are."""

    __slots__ = ("_maps", "_small")

    def __init__(self, maps_kept: int = MAPS_KEPT, small_kept: int = SMALL_KEPT) -> None:
        self._maps = _Ring(maps_kept)
        self._small = _Ring(small_kept)

    def load(self, disk: Disk, index: SparseIndex, size: int) -> MappedFile:
        """The file of `index`, which has `size` bytes; `give_up_map` is called on it some day."""
        if size > SMALL_BYTES:
            mapped = disk.map(index.path, size)
            self._maps.keep(index)
            return mapped
        data = disk.read(index.path)
        self._small.keep(index)
        return _InMemory(memoryview(data.ljust(size, b"\0")))


class _InMemory:
    """Entries in memory: no file has them yet, or they are few."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    @property
    def size(self) -> int:
        """Bytes of room."""
        return len(self.view)

    def resize(self, size: int) -> None:
        """Other room."""
        self.view = memoryview(bytearray(self.view[:size]).ljust(size, b"\0"))

    def sync(self) -> None:
        """There is no file."""

    def close(self) -> None:
        """Nothing is held."""


class SparseIndex:
    """Entries of one fixed size, in order."""

    __slots__ = (
        "_disk",
        "_draft",
        "_entries",
        "_entries_max",
        "_mapped",
        "_maps",
        "_room",
        "base_offset",
        "path",
    )
    ENTRY: struct.Struct

    def __init__(
        self, disk: Disk, path: str, base_offset: int, *, bytes_max: int, maps: IndexMaps
    ) -> None:
        self._disk = disk
        self._maps = maps
        self._mapped: MappedFile | None = None
        self._draft: _InMemory | None = None
        self._room: memoryview | None = None
        """The mapping's view, while it has room for every entry."""
        self._entries: int = 0
        self._entries_max: int = bytes_max // self.ENTRY.size
        self.path = path
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self._entries

    @property
    def is_mapped(self) -> bool:
        """True while it holds a mapping (or the entries of a small index)."""
        return self._mapped is not None

    # -- the file

    def load(self, *, may_be_absent: bool) -> None:
        """Count the entries of the file and check them; CorruptLogError when it is missing or no index."""
        size = self._file_size()
        if size is None:
            if may_be_absent:
                return
            raise CorruptLogError(f"{self.path}: missing")
        if size % self.ENTRY.size:
            raise CorruptLogError(f"{self.path}: {size} bytes, not a multiple of {self.ENTRY.size}")
        self._entries = size // self.ENTRY.size
        if self._entries:
            try:
                self._check()
            except CorruptLogError:
                self._entries = 0
                self.give_up_map()
                raise

    def _check(self) -> None:
        """CorruptLogError when the entries cannot be this segment's."""
        raise NotImplementedError

    def _file_size(self) -> int | None:
        try:
            file = self._disk.open(self.path, create=False)
        except FileNotFoundError:
            return None
        try:
            return file.size()
        finally:
            file.close()

    def begin(self) -> memoryview:
        """Map the file with room for every entry; what lies beyond the present ones does not count."""
        if self._room is None:
            self.give_up_map()
            size = max(self._entries_max, self._entries + 1) * self.ENTRY.size
            self._mapped = mapped = self._disk.map(self.path, size)
            self._room = mapped.view
        return self._room

    def begin_anew(self, entries: int) -> None:
        """Forget every entry; up to `entries` told from here on are kept in memory until `seal` writes them.

        Recovery's way: a page fault into a hole of a file costs more than most segments' whole index.
        """
        self._end_map()
        self._entries = 0
        size = min(max(self._entries_max, 1), entries) * self.ENTRY.size
        self._room = memoryview(bytearray(size))
        self._mapped = self._draft = _InMemory(self._room)

    def seal(self) -> None:
        """Trim the file to its entries; it is made where there is none."""
        draft, self._draft = self._draft, None
        if draft is not None:
            file = self._disk.open(self.path)
            try:
                file.truncate(0)
                file.append((draft.view[: self._entries * self.ENTRY.size],))
            finally:
                file.close()
        self._end_map()
        if draft is None:
            self._cut_file()

    def _cut_file(self) -> None:
        size = self._entries * self.ENTRY.size
        file = self._disk.open(self.path)
        try:
            if file.size() != size:
                file.truncate(size)
        finally:
            file.close()

    def sync(self) -> None:
        """BLOCKS. fsync a sealed index."""
        file = self._disk.open(self.path)
        try:
            file.sync()
        finally:
            file.close()

    def clear(self) -> None:
        """Forget every entry, in the file too."""
        self._entries = 0
        self.seal()

    def keep_entries(self, count: int) -> None:
        """Forget the entries from `count` on."""
        assert count >= 0, f"{self.path}: {count} entries"
        if count < self._entries:
            self._entries = count
            if self._room is None:
                self.seal()

    def give_up_map(self) -> None:
        """Let a sealed index's mapping go: it ends when the last look-up on it does."""
        if self._room is None:
            self._mapped = None

    def close(self) -> None:
        """Give the mapping back; the file stays as it is."""
        self._end_map()

    def _end_map(self) -> None:
        mapped, self._mapped = self._mapped, None
        self._room = None
        if mapped is not None:
            mapped.close()

    # -- look-ups

    def _view(self) -> memoryview:
        """All of the file; there is at least one entry."""
        mapped = self._mapped
        if mapped is None:
            mapped = self._maps.load(self._disk, self, self._entries * self.ENTRY.size)
            self._mapped = mapped
        return mapped.view

    def _search(self, search: Callable[[memoryview, int], T]) -> T:
        """`search` on the entries and their number, which is at least one.

        On another thread the loop may end the mapping under it (roll, truncation): then it goes again.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            count = self._entries
            try:
                return search(self._view() if count else _NO_VIEW, count)
            except ValueError:  # a view that was released: the mapping ended
                if not attempts_left:
                    raise
                self.give_up_map()
        raise AssertionError("an attempt returns or raises")
