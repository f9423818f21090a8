"""Merges batches of states of one share-partition: what was stored so far, and what a write adds.

Where batches overlap, the greater delivery count wins, then the greater state, whichever was written first: a record
goes forward only. Neighbours with the same state and count become one batch; what lies below the start offset is
dropped. Source: Kafka's PersisterStateBatchCombiner.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from ..ids import Offset
from .values import UNINITIALIZED, StateBatch


def merged(batches: Iterable[StateBatch], start_offset: Offset) -> tuple[StateBatch, ...]:
    """Return the batches in the order of their offsets, without overlap, from `start_offset` on (-1: all of them)."""
    rows = sorted(_cut(batches, start_offset))
    bounds = sorted({bound for row in rows for bound in (row.first_offset, row.last_offset + 1)})
    found: list[StateBatch] = []
    open_: list[tuple[int, int, int]] = []
    """Batches that have begun, the winner first: -count, -state, last offset."""
    at = 0
    for first, end in itertools.pairwise(bounds):
        while at < len(rows) and rows[at].first_offset <= first:
            heapq.heappush(open_, (-rows[at].delivery_count, -rows[at].state, rows[at].last_offset))
            at += 1
        while open_ and open_[0][2] < first:
            heapq.heappop(open_)
        if open_:
            count, state, _ = open_[0]
            _append(found, StateBatch(Offset(first), Offset(end - 1), type(rows[0].state)(-state), -count))
    assert all(a.last_offset < b.first_offset for a, b in itertools.pairwise(found)), f"{found} overlap"
    return tuple(found)


def _cut(batches: Iterable[StateBatch], start_offset: Offset) -> Iterable[StateBatch]:
    for batch in batches:
        if start_offset == UNINITIALIZED or batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    last = found[-1] if found else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        found[-1] = last._replace(last_offset=batch.last_offset)
    else:
        found.append(batch)
