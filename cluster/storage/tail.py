"""The newest batches of a log in memory: fetches of them read no file.

Owns: `Tail`: the newest batches of one log, at most `limit` bytes (`harrow.tail.bytes`); `TailBudget`: the bytes of
all tails of a broker (`harrow.tail.total.bytes`). Both count the bookkeeping. Invariants: batches are in offset
order; every batch here is in the file, too. A batch is kept in the parts that were written: its bytes, or its header
and a view of the producer's request. A look-up is one bisection; a read copies nothing. When the budget is used up,
the tail without appends and reads for the longest time is cleared first: any number of idle logs costs nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from operator import itemgetter

from ..host.seam import Buffer
from ..ids import Offset
from .results import FetchData

ENTRY_COST = 256
"""Bytes charged for each batch besides its own: its parts, their tuple, its entry and the entry's place."""

_EVICTED_AT_ONCE = 16
"""A sixteenth of a tail is evicted at once, so that the list is cut rarely."""

Kept = tuple[int, int, int, tuple[Buffer, ...]]
"""A batch: base offset, last offset, size, parts."""

_base_of = itemgetter(0)


class TailBudget:
    """The memory that all tails of a broker share."""

    __slots__ = ("_latest", "_limit", "_tails", "used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tails: OrderedDict[Tail, None] = OrderedDict()
        self._latest: Tail | None = None
        self.used = 0
        """Bytes held now."""

    def charge(self, tail: Tail, size: int) -> None:
        """`tail` holds `size` bytes more and was used; others are cleared if the budget is exceeded."""
        self.used = used = self.used + size
        tails = self._tails
        if tail is not self._latest or tail not in tails:
            self._latest = tail
            tails[tail] = None
            tails.move_to_end(tail)
        if used > self._limit:
            self._spend_less()

    def _spend_less(self) -> None:
        tails = self._tails
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
        assert self.used >= 0, f"the tails give back {-self.used} bytes that they never held"
        if tail.size == 0:
            self._tails.pop(tail, None)


class Tail:
    """The last batches of a log."""

    __slots__ = ("_batches", "_budget", "_limit", "size")

    def __init__(self, limit: int, budget: TailBudget | None = None) -> None:
        self._limit = limit
        self._budget = budget or TailBudget(limit)
        self._batches: list[Kept] = []
        self.size = 0
        """Bytes held, bookkeeping counted."""

    def share(self, budget: TailBudget) -> None:
        """Use `budget` from now on."""
        assert self.size == 0, "a tail joins a budget before it holds anything"
        self._budget = budget

    def append(self, base_offset: int, last_offset: int, size: int, parts: tuple[Buffer, ...]) -> None:
        """Keep one batch, the `size` bytes of `parts`; the oldest batches are evicted."""
        cost = size + ENTRY_COST
        if cost > self._limit:
            self.clear()  # a tail always ends at the log end offset
            return
        batches = self._batches
        assert not batches or batches[-1][1] < base_offset, f"batch {base_offset} is not the newest"
        batches.append((base_offset, last_offset, size, parts))
        self.size += cost
        if self.size > self._limit:
            cost -= self._evict()
        self._budget.charge(self, cost)

    def _evict(self) -> int:
        """Evict the oldest batches, never the newest; returns how many bytes."""
        least = self.size - self._limit + self._limit // _EVICTED_AT_ONCE
        count, freed, last = 0, 0, len(self._batches) - 1
        for _, _, size, _ in self._batches:
            if freed >= least or count == last:
                break
            freed += size + ENTRY_COST
            count += 1
        del self._batches[:count]
        self.size -= freed
        assert self.size > 0, f"a tail of {len(self._batches)} batches has {self.size} bytes"
        return freed

    def _free(self, size: int) -> None:
        if size:
            self.size -= size
            self._budget.refund(self, size)
        assert self.size >= 0 and bool(self.size) == bool(self._batches), (
            f"{self.size} bytes, {len(self._batches)} batches"
        )

    def read(self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> FetchData | None:
        """Whole batches from the batch with `offset` on; None when the tail does not have it."""
        batches = self._batches
        index = bisect_right(batches, offset, key=_base_of) - 1
        if index < 0:
            return None
        if batches[index][1] < offset:  # `offset` lies in a gap of the leader's compacted log
            index += 1
        parts: list[Buffer] = []
        size = 0
        for at in range(index, len(batches)):
            base, _, more, kept = batches[at]
            if base >= upper or (size + more > max_bytes and (parts or not at_least_one)):
                break
            parts += kept
            size += more
        self._budget.touch(self)
        return FetchData(parts, size, Offset(batches[index][0] if parts else offset))

    def holds(self, offset: int) -> bool:
        """Whether `read` serves from `offset` on."""
        return bool(self._batches) and self._batches[0][0] <= offset

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that ends at or above `offset`."""
        batches, freed = self._batches, 0
        while batches and batches[-1][1] >= offset:
            freed += batches.pop()[2] + ENTRY_COST
        self._free(freed)

    def clear(self) -> None:
        """Remove everything."""
        self._batches.clear()
        self._free(self.size)
