"""Committed offsets of one group (G4).

Owns: the newest committed offset of each partition, with the log offset of its record, and which commits are in
progress. Invariant (G4): an entry is replaced or removed only by a record with a higher log offset, so that results
of the log that arrive out of order never move a committed offset backwards.

An offset that was committed in a transaction is pending until the marker of its producer: a commit makes it valid as
if its record had been a usual one, an abort drops it (F6).

Source: Kafka's GroupMetadata.offsets (appendedBatchOffset), pendingTransactionalOffsetCommits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..ids import Offset, TopicPartition
from .records import OffsetValue


class Committed(NamedTuple):
    """A committed offset, and the log offset of its record in the offsets partition."""

    value: OffsetValue
    log_offset: Offset


class GroupOffsets:
    """The committed offsets of one group."""

    __slots__ = ("_committed", "_pending", "_transactional", "_written_in_transaction")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Committed] = {}
        self._pending: Counter[TopicPartition] = Counter()
        self._written_in_transaction: Counter[TopicPartition] = Counter()
        self._transactional: dict[int, dict[TopicPartition, Committed]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    @property
    def in_flight(self) -> bool:
        """True while a commit is in progress, or pending in a transaction."""
        return bool(self._pending) or bool(self._transactional)

    def is_pending(self, topic_partition: TopicPartition) -> bool:
        """True while a commit of that partition is in progress, or pending in a transaction."""
        return topic_partition in self._pending or self.is_unstable(topic_partition)

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """True while a transaction that has not ended has a commit of that partition (KIP-447)."""
        return topic_partition in self._written_in_transaction or any(
            topic_partition in rows for rows in self._transactional.values()
        )

    def items(self) -> list[tuple[TopicPartition, OffsetValue]]:
        """Every committed offset."""
        return [(tp, committed.value) for tp, committed in self._committed.items()]

    def get(self, topic_partition: TopicPartition) -> OffsetValue | None:
        """The committed offset; None where there is none."""
        found = self._committed.get(topic_partition)
        return None if found is None else found.value

    def has_record(self, topic_partition: TopicPartition) -> bool:
        """True where the log has an offset of that partition, committed or pending in a transaction."""
        pending = any(topic_partition in rows for rows in self._transactional.values())
        return topic_partition in self._committed or pending

    def written(self) -> list[TopicPartition]:
        """Every partition that has a record in the log, or will have once a commit in progress is appended."""
        pending = [tp for rows in self._transactional.values() for tp in rows]
        return list(dict.fromkeys((*self._committed, *self._pending, *pending)))

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """A commit of these partitions is written to the log; `end` follows."""
        for tp in partitions:
            self._pending[tp] += 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """That commit was committed or refused."""
        for tp in partitions:
            assert self._pending[tp] > 0, f"{tp}: a commit ended that never began"
            self._pending[tp] -= 1
            if not self._pending[tp]:
                del self._pending[tp]

    def put(self, topic_partition: TopicPartition, value: OffsetValue, log_offset: Offset) -> bool:
        """Store a commit whose record has `log_offset`; False when a later commit is stored already."""
        found = self._committed.get(topic_partition)
        if found is not None and found.log_offset > log_offset:
            return False
        self._committed[topic_partition] = Committed(value, log_offset)
        return True

    def put_pending(
        self, producer_id: int, topic_partition: TopicPartition, value: OffsetValue, log_offset: Offset
    ) -> None:
        """Store a commit that counts once the transaction of this producer is committed."""
        rows = self._transactional.setdefault(producer_id, {})
        found = rows.get(topic_partition)
        if found is None or found.log_offset <= log_offset:
            rows[topic_partition] = Committed(value, log_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> list[tuple[TopicPartition, OffsetValue]]:
        """The transaction of this producer ended; returns the offsets that became valid."""
        rows = self._transactional.pop(producer_id, {})
        if not commit:
            return []
        return [(tp, row.value) for tp, row in rows.items() if self.put(tp, *row)]

    def begin_in_transaction(self, partitions: Iterable[TopicPartition]) -> None:
        """As `begin`, for a commit in a transaction; `end_in_transaction` follows."""
        rows = list(partitions)
        self.begin(rows)
        for tp in rows:
            self._written_in_transaction[tp] += 1

    def end_in_transaction(self, partitions: Iterable[TopicPartition]) -> None:
        """That commit was written or refused."""
        rows = list(partitions)
        self.end(rows)
        for tp in rows:
            assert self._written_in_transaction[tp] > 0, f"{tp}: a commit in a transaction ended that never began"
            self._written_in_transaction[tp] -= 1
            if not self._written_in_transaction[tp]:
                del self._written_in_transaction[tp]

    def remove(self, topic_partition: TopicPartition, log_offset: Offset) -> bool:
        """Apply a tombstone whose record has `log_offset`; False when a later commit is stored already."""
        for producer_id, rows in tuple(self._transactional.items()):
            if topic_partition in rows and rows[topic_partition].log_offset < log_offset:
                del rows[topic_partition]
                if not rows:
                    del self._transactional[producer_id]
        found = self._committed.get(topic_partition)
        if found is None or found.log_offset > log_offset:
            return False
        del self._committed[topic_partition]
        return True
