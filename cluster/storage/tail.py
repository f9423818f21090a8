"""The end of a log in memory: fetches of what was just appended read no file.

Owns: the newest batches of one log, `limit` bytes of them at most (`harrow.tail.bytes`), bookkeeping
counted. Invariants: batches lie in offset order; what is here is in the file too. A look-up is one
bisection; a read copies nothing.
"""

from __future__ import annotations

from bisect import bisect_right

from ..host.seam import Buffer
from ..ids import Offset
from .results import FetchData

ENTRY_COST = 256
"""Bytes charged for each batch besides its own: the view, its buffer and three list slots."""

_COMPACT_AT = 1024
_EMPTY = memoryview(b"")


class Tail:
    """The last batches of a log."""

    __slots__ = ("_bases", "_buffers", "_head", "_lasts", "_limit", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._bases: list[int] = []
        self._lasts: list[int] = []
        self._buffers: list[memoryview] = []
        self._head = 0  # entries before it are evicted; cut off now and then

    def append(self, base_offset: int, last_offset: int, batch: memoryview) -> None:
        """Keep one batch; the oldest give way."""
        self._bases.append(base_offset)
        self._lasts.append(last_offset)
        self._buffers.append(batch)
        self._size += len(batch) + ENTRY_COST
        if self._size > self._limit:
            self._evict()

    def _evict(self) -> None:
        head = self._head
        while self._size > self._limit and head < len(self._buffers):
            self._size -= len(self._buffers[head]) + ENTRY_COST
            self._buffers[head] = _EMPTY
            head += 1
        if head > _COMPACT_AT and head * 2 > len(self._bases):
            del self._bases[:head], self._lasts[:head], self._buffers[:head]
            head = 0
        self._head = head

    def read(
        self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool
    ) -> FetchData | None:
        """Whole batches from the one with `offset`; None when that one is not here."""
        bases, head = self._bases, self._head
        index = bisect_right(bases, offset, head) - 1
        if index < head:
            return None
        if self._lasts[index] < offset:  # a gap that compaction left
            index += 1
        parts: list[Buffer] = []
        size = 0
        for at in range(index, len(bases)):
            batch = self._buffers[at]
            if bases[at] >= upper:
                break
            if size + len(batch) > max_bytes and (parts or not at_least_one):
                break
            parts.append(batch)
            size += len(batch)
        return FetchData(parts, size, Offset(bases[index] if parts else offset))

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or above `offset`."""
        keep = len(self._lasts)
        while keep > self._head and self._lasts[keep - 1] >= offset:
            keep -= 1
            self._size -= len(self._buffers[keep]) + ENTRY_COST
        del self._bases[keep:], self._lasts[keep:], self._buffers[keep:]

    def clear(self) -> None:
        """Drop everything."""
        self._bases.clear()
        self._lasts.clear()
        self._buffers.clear()
        self._head = self._size = 0
