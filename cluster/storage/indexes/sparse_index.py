"""Base class of the two sparse indexes of a segment (B3): fixed-size entries in a mapped file.

Owns: the file and its mapping. States of a file, as in Kafka:

    new, empty        0 bytes (or none: an empty segment's index may be absent)
    being written     mapped and preallocated to `segment.index.bytes` at the first append; entries
                      beyond `len` are zeroes, or what a truncation left behind
    sealed            trimmed to its entries, at roll and at a clean close; mapped again when looked up

A crash leaves the preallocated form. Only segments from the recovery point on can have it, and recovery rebuilds their
indexes: those below were trimmed and fsynced before the recovery point advanced.

Invariants: an entry is complete before `len` counts it, so a look-up on another thread sees whole
entries; a look-up whose mapping ends meanwhile tries again on a new mapping. `IndexMaps` holds the mappings of sealed
indexes and gives up the oldest: memory and descriptors stay bounded with any number of segments.

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
"""Most mappings of sealed indexes in one broker; each has a descriptor."""

SMALL_BYTES = 1024
SMALL_KEPT = 32_768
"""Sealed indexes of at most `SMALL_BYTES` are read instead of mapped; a broker keeps so many of them (32 MiB)."""

_NO_VIEW = memoryview(b"")
_ATTEMPTS = 4
"""Attempts of a look-up: a roll, a truncation or a close ends the mapping, but not four times in a row."""

T = TypeVar("T")


class _Ring:
    """Keeps the newest indexes and drops the oldest. Threads may race: at worst an index stays longer."""

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
    """The mappings of one broker's sealed indexes, and the bytes of small indexes."""

    __slots__ = ("_maps", "_small")

    def __init__(self, maps_kept: int = MAPS_KEPT, small_kept: int = SMALL_KEPT) -> None:
        self._maps = _Ring(maps_kept)
        self._small = _Ring(small_kept)

    def load(self, disk: Disk, index: SparseIndex, size: int) -> MappedFile:
        """The file of `index`, of `size` bytes; `index.give_up_map` is called later."""
        if size > SMALL_BYTES:
            mapped = disk.map(index.path, size)
            self._maps.keep(index)
            return mapped
        data = disk.read(index.path)
        self._small.keep(index)
        return _InMemory(memoryview(data.ljust(size, b"\0")))


class _InMemory:
    """Entries in memory: of a rebuild, or of a small index."""

    __slots__ = ("view",)

    def __init__(self, view: memoryview) -> None:
        self.view = view

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self.view)

    def resize(self, size: int) -> None:
        """Change the size."""
        self.view = memoryview(bytearray(self.view[:size]).ljust(size, b"\0"))

    def sync(self) -> None:
        """Nothing to do: there is no file."""

    def close(self) -> None:
        """Nothing to do."""


class SparseIndex:
    """Entries of one fixed size, in order."""

    __slots__ = ("_disk", "_draft", "_entries", "_entries_max", "_mapped", "_maps", "_room", "base_offset", "path")
    ENTRY: struct.Struct

    def __init__(self, disk: Disk, path: str, base_offset: int, *, bytes_max: int, maps: IndexMaps) -> None:
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
        """Count and check the entries of the file; CorruptLogError when it is missing or not an index."""
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
                self.check_entries()
            except CorruptLogError:
                self._entries = 0
                self.give_up_map()
                raise

    def check_entries(self) -> None:
        """CorruptLogError when the entries cannot belong to this segment."""
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
        """Map the file with room for every entry; bytes after the present entries have no meaning."""
        if self._room is None:
            self.give_up_map()
            size = max(self._entries_max, self._entries + 1) * self.ENTRY.size
            self._mapped = mapped = self._disk.map(self.path, size)
            self._room = mapped.view
        return self._room

    def begin_rebuild(self, entries: int) -> None:
        """Remove every entry; up to `entries` new entries are kept in memory until `seal` writes them.

        For recovery: a page fault into a hole of a file costs more than the whole index of most segments.
        """
        self._end_map()
        self._entries = 0
        size = min(max(self._entries_max, 1), entries) * self.ENTRY.size
        self._room = memoryview(bytearray(size))
        self._mapped = self._draft = _InMemory(self._room)

    def seal(self) -> None:
        """Trim the file to its entries; create the file when it is absent."""
        draft, self._draft = self._draft, None
        if draft is not None:
            file = self._disk.open(self.path)
            assert self._entries * self.ENTRY.size <= draft.size, (
                f"{self.path}: {self._entries} entries in {draft.size} bytes"
            )
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
        """Remove every entry, in the file as well."""
        self._entries = 0
        self.seal()

    def keep_entries(self, count: int) -> None:
        """Remove the entries from index `count` on."""
        assert count >= 0, f"{self.path}: {count} entries"
        if count < self._entries:
            self._entries = count
            if self._room is None:
                self.seal()

    def give_up_map(self) -> None:
        """Drop the mapping of a sealed index; it ends with the last look-up that uses it."""
        if self._room is None:
            self._mapped = None

    def close(self) -> None:
        """Unmap the file without a change."""
        self._end_map()

    def _end_map(self) -> None:
        mapped, self._mapped = self._mapped, None
        self._room = None
        if mapped is not None:
            mapped.close()

    # -- look-ups

    def _view(self) -> memoryview:
        """The whole file; there is at least one entry."""
        mapped = self._mapped
        if mapped is None:
            mapped = self._maps.load(self._disk, self, self._entries * self.ENTRY.size)
            self._mapped = mapped
        return mapped.view

    def _search(self, search: Callable[[memoryview, int], T]) -> T:
        """Run `search` on the entries and their number.

        When the loop ends the mapping during a search on another thread (roll, truncation), the search runs again.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            count = self._entries
            try:
                return search(self._view() if count else _NO_VIEW, count)
            except ValueError:  # a released view: the mapping has ended
                if not attempts_left:
                    raise
                self.give_up_map()
        raise AssertionError("an attempt returns or raises")
