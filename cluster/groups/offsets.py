"""Committed offsets of one group (G4).

Owns: the newest committed offset of each partition, with the log offset of its record, and which commits are in
progress. Invariant (G4): an entry is replaced or removed only by a record with a higher log offset, so that results
of the log that arrive out of order never move a committed offset backwards.

Source: Kafka's GroupMetadata.offsets (appendedBatchOffset).
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

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Committed] = {}
        self._pending: Counter[TopicPartition] = Counter()

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._committed)

    @property
    def in_flight(self) -> bool:
        """True while a commit is in progress."""
        return bool(self._pending)

    def is_pending(self, topic_partition: TopicPartition) -> bool:
        """True while a commit of that partition is in progress."""
        return topic_partition in self._pending

    def items(self) -> list[tuple[TopicPartition, OffsetValue]]:
        """Every committed offset."""
        return [(tp, committed.value) for tp, committed in self._committed.items()]

    def get(self, topic_partition: TopicPartition) -> OffsetValue | None:
        """The committed offset; None where there is none."""
        found = self._committed.get(topic_partition)
        return None if found is None else found.value

    def written(self) -> list[TopicPartition]:
        """Every partition that has a record in the log, or will have once a commit in progress is appended."""
        return list(dict.fromkeys((*self._committed, *self._pending)))

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

    def remove(self, topic_partition: TopicPartition, log_offset: Offset) -> bool:
        """Apply a tombstone whose record has `log_offset`; False when a later commit is stored already."""
        found = self._committed.get(topic_partition)
        if found is None or found.log_offset > log_offset:
            return False
        del self._committed[topic_partition]
        return True
