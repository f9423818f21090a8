"""Transactions as a compaction meets them, batch by batch from the start of a log (B8, F5).

Owns: which transactions are under way at the batch being read, which of them will abort, and whether any
of their data was met. Told of every batch in order it answers one question: may the batch's content go?

    data of a transaction that aborts       yes, at once
    other data                              no: keys decide
    a commit or abort marker                once no data of its transaction was met: the marker is then
                                            all that is left of it (record_filter.py waits for its horizon)
    an empty control batch                  yes

An abort marker that stays takes its entry along into the cleaned segment's `.txnindex`.

Worked example, producer 7 aborts [3 … 9]: batch 3 discarded; marker 9 kept, with its index entry; at the
next cleaning no batch of it is met before marker 9, so the marker may go when its horizon has passed.

Source: Kafka's `CleanedTransactionMetadata`; KIP-98, KIP-534.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from ...errors import CorruptLogError
from ...wire.batches import BatchHeader
from ...wire.records import CONTROL_KEY
from ..indexes.transaction_index import AbortedTxn
from ..record_spans import record_spans
from .record_filter import records_of

ABORT, COMMIT = 0, 1


class CleanedTransactions:
    """The transactions of one walk over a log."""

    __slots__ = ("_aborted", "_committing", "_met", "_waiting", "kept")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        """`aborted`: every aborted transaction that overlaps what is walked over."""
        self._waiting = [(one.first_offset, one) for one in aborted]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()  # producers whose aborting transaction had data here
        self._committing: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Index entries of abort markers that stay; the writer of the cleaned segment takes them."""

    def data_may_go(self, header: BatchHeader) -> bool:
        """Told of a data batch: True when its transaction aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def marker_may_go(self, batch: memoryview, header: BatchHeader) -> bool:
        """Told of a control batch: True when no data of its transaction was met."""
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True
        producer = header.producer_id
        kind = _kind(batch, header)
        if kind == ABORT:
            aborted = self._aborted.pop(producer, None)
            if aborted is not None and producer in self._met:
                self._met.discard(producer)
                self.kept.append(aborted)
                return False
            return True
        if kind == COMMIT:
            met = producer in self._committing
            self._committing.discard(producer)
            return not met
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, aborted = heapq.heappop(self._waiting)
            self._aborted.setdefault(aborted.producer_id, aborted)

    def take_kept(self) -> list[AbortedTxn]:
        """What `kept` has gathered since the last call."""
        kept, self.kept = self.kept, []
        return kept


def _kind(batch: memoryview, header: BatchHeader) -> int:
    _, _, _, key, _ = record_spans(records_of(batch, header), 1)[0]
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptLogError(f"control batch {header.base_offset} has no key")
    return int(CONTROL_KEY.unpack_from(key)[1])
