"""The end of a log in memory: fetches of what was just appended read no file.

Owns: `Tail`: the newest batches of one log, `limit` bytes of them at most (`harrow.tail.bytes`); `TailBudget`: how
much all tails of a broker hold together (`harrow.tail.total.bytes`). Both count the bookkeeping.
Invariants: batches lie in offset order; what is here is in the file too. A look-up is one bisection; a read
copies nothing. When the budget is spent, the tail that was neither appended to nor read for longest goes
first: a log at rest costs nothing, however many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from ..host.seam import Buffer
from ..ids import Offset
from .results import FetchData

ENTRY_COST = 256
"""Bytes charged for each batch besides its own: the view, its buffer and three list slots."""

_COMPACT_AT = 1024
_EMPTY = memoryview(b"")


class TailBudget:
    """What all tails of a broker may hold together."""

    __slots__ = ("_latest", "_limit", "_tails", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tails: OrderedDict[Tail, None] = OrderedDict()
        self._latest: Tail | None = None
        self.used = 0
        """Bytes held now."""

    def charge(self, tail: Tail, size: int) -> None:
        """`tail` holds `size` bytes more, and was used; others give way where that is too much."""
        self.used += size
        tails = self._tails
        if tail is not self._latest or tail not in tails:
            self._latest = tail
            tails[tail] = None
            tails.move_to_end(tail)
        while self.used > self._limit and len(tails) > 1:
            oldest, _ = tails.popitem(last=False)
            oldest.clear()

    def touch(self, tail: Tail) -> None:
        """`tail` was read."""
        if tail is not self._latest and tail in self._tails:
            self._latest = tail
            self._tails.move_to_end(tail)

    def refund(self, tail: Tail, size: int) -> None:
        """`tail` holds `size` bytes less."""
        self.used -= size
        if tail.size == 0:
            self._tails.pop(tail, None)


class Tail:
    """The last batches of a log."""

    __slots__ = ("_bases", "_budget", "_buffers", "_head", "_lasts", "_limit", "size")

    def __init__(self, limit: int, budget: TailBudget | None = None) -> None:
        self._limit = limit
        self._budget = budget or TailBudget(limit)
        self._bases: list[int] = []
        self._lasts: list[int] = []
        self._buffers: list[memoryview] = []
        self._head = 0  # entries before it are evicted; cut off now and then
        self.size = 0
        """Bytes held, bookkeeping counted."""

    def share(self, budget: TailBudget) -> None:
        """Count toward `budget` from now on."""
        assert self.size == 0, "a tail joins a budget before it holds anything"
        self._budget = budget

    def append(self, base_offset: int, last_offset: int, batch: memoryview) -> None:
        """Keep one batch; the oldest give way."""
        cost = len(batch) + ENTRY_COST
        if cost > self._limit:
            self.clear()  # what is kept ends where the log ends
            return
        self._bases.append(base_offset)
        self._lasts.append(last_offset)
        self._buffers.append(batch)
        self.size += cost
        if self.size > self._limit:
            cost -= self._evict()
        self._budget.charge(self, cost)

    def _evict(self) -> int:
        head, buffers = self._head, self._buffers
        before = size = self.size
        while size > self._limit:
            size -= len(buffers[head]) + ENTRY_COST
            buffers[head] = _EMPTY
            head += 1
        if head > _COMPACT_AT and head * 2 > len(self._bases):
            del self._bases[:head], self._lasts[:head], self._buffers[:head]
            head = 0
        self._head = head
        self.size = size
        return before - size

    def _free(self, size: int) -> None:
        if size:
            self.size -= size
            self._budget.refund(self, size)

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
        self._budget.touch(self)
        return FetchData(parts, size, Offset(bases[index] if parts else offset))

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that ends at or above `offset`."""
        keep, freed = len(self._lasts), 0
        while keep > self._head and self._lasts[keep - 1] >= offset:
            keep -= 1
            freed += len(self._buffers[keep]) + ENTRY_COST
        del self._bases[keep:], self._lasts[keep:], self._buffers[keep:]
        self._free(freed)

    def clear(self) -> None:
        """Drop everything."""
        self._bases.clear()
        self._lasts.clear()
        self._buffers.clear()
        self._head = 0
        self._free(self.size)
