"""Committed offsets of one group (G4).

Owns: the newest committed offset of each partition a group has committed, ordered by where the commit
stands in the log. Invariant (G4): an entry is replaced only by a commit that stands later in the log, so
that answers that arrive out of order never take a committed offset back.

Source: Kafka's GroupMetadata.offsets (appendedBatchOffset).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..ids import Offset, TopicPartition
from .records import OffsetValue


class Committed(NamedTuple):
    """A committed offset and where its record stands in the offsets partition."""

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
        """True while a commit waits for its replicas."""
        return bool(self._pending)

    def is_pending(self, topic_partition: TopicPartition) -> bool:
        """True while a commit of that partition waits for its replicas."""
        return topic_partition in self._pending

    def items(self) -> list[tuple[TopicPartition, OffsetValue]]:
        """What is committed."""
        return [(tp, committed.value) for tp, committed in self._committed.items()]

    def get(self, topic_partition: TopicPartition) -> OffsetValue | None:
        """What is committed; None where nothing is."""
        found = self._committed.get(topic_partition)
        return None if found is None else found.value

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """A commit of these partitions was handed to the log; `end` follows."""
        for tp in partitions:
            self._pending[tp] += 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """The log has answered that commit."""
        for tp in partitions:
            assert self._pending[tp] > 0, f"{tp}: a commit ended that never began"
            self._pending[tp] -= 1
            if not self._pending[tp]:
                del self._pending[tp]

    def put(self, topic_partition: TopicPartition, value: OffsetValue, log_offset: Offset) -> bool:
        """Take a commit that the log holds at `log_offset`; False when a later one is known already."""
        found = self._committed.get(topic_partition)
        if found is not None and found.log_offset > log_offset:
            return False
        self._committed[topic_partition] = Committed(value, log_offset)
        return True

    def remove(self, topic_partition: TopicPartition, log_offset: Offset) -> bool:
        """Take a tombstone that the log holds at `log_offset`; False when a later commit is known already."""
        found = self._committed.get(topic_partition)
        if found is None or found.log_offset > log_offset:
            return False
        del self._committed[topic_partition]
        return True
