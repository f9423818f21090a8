"""The transactions of a log during its compaction, batch by batch from the start of the log (B8, F5).

Owns: which transactions are open at the present batch, which of them will abort, and whether the walk has passed data
of them. The caller passes each batch in offset order. The result says whether compaction may discard the batch's
records:

    data of a transaction that aborts       yes, at once
    other data                              no: the keys decide
    a commit or abort marker                when the walk passed no data of its transaction: only the marker is left
                                            (record_filter.py then waits for its delete horizon)
    an empty control batch                  yes

The entry of an abort marker that stays is copied to the cleaned segment's `.txnindex`.

Worked example, producer 7 aborts [3 … 9]: batch 3 discarded; marker 9 kept, with its index entry; at the
next cleaning no batch of the transaction precedes marker 9, so the marker is removed once its delete horizon has
passed.

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
        """`aborted`: every aborted transaction with records in the range of the walk."""
        self._waiting = [(transaction.first_offset, transaction) for transaction in aborted]
        heapq.heapify(self._waiting)
        self._aborted: dict[int, AbortedTxn] = {}
        self._met: set[int] = set()  # producers whose aborted transaction had data in the walk
        self._committing: set[int] = set()
        self.kept: list[AbortedTxn] = []
        """Index entries of abort markers that stay; the writer of the cleaned segment takes them."""

    def is_aborted_data(self, header: BatchHeader) -> bool:
        """Process a data batch: True when its transaction aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._met.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def is_superfluous_marker(self, batch: memoryview, header: BatchHeader) -> bool:
        """Process a control batch: True when the walk passed no data of its transaction."""
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
        """The entries in `kept`, which is empty afterwards."""
        kept, self.kept = self.kept, []
        return kept


def _kind(batch: memoryview, header: BatchHeader) -> int:
    _, _, _, key, _ = record_spans(records_of(batch, header), 1)[0]
    if key is None or len(key) < CONTROL_KEY.size:
        raise CorruptLogError(f"control batch {header.base_offset} has no key")
    return int(CONTROL_KEY.unpack_from(key)[1])
