"""Records of a share-partition as values: neighbours in one state, changes of them, and what members and queues get.

`SharePartitionState` (`share_partition.py`) owns the rules. Source: Kafka's InFlightBatch, InFlightState.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ..ids import Offset
from ..share_coordinator.values import DeliveryState, StateBatch

NO_MEMBER = ""


class AcquiredRecords(NamedTuple):
    """Records that a member has got."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int


class DeadLetters(NamedTuple):
    """Records that no member gets any more, for the dead-letter queue of their group."""

    first_offset: Offset
    last_offset: Offset
    delivery_count: int
    rejected: bool
    """A member has rejected them; else they were delivered as often as is allowed."""


class BatchSpan(NamedTuple):
    """A batch of the log that was read for a fetch."""

    first_offset: Offset
    last_offset: Offset
    aborted: bool = False
    """It belongs to a transaction that was aborted, and the group reads committed records only."""


@dataclass(slots=True, kw_only=True)
class Records:
    """Neighbouring records in one state."""

    first: Offset
    last: Offset
    state: DeliveryState
    delivery_count: int
    member: str = NO_MEMBER
    deadline_ms: int = 0
    """When the lock of acquired records ends, on the monotonic clock."""
    next_state: DeliveryState | None = None
    """Set while a change of them is being stored."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_free(self) -> bool:
        """True when a member may acquire them."""
        return self.state is DeliveryState.AVAILABLE and self.next_state is None


@dataclass(slots=True, kw_only=True)
class Change:
    """Records in transition, and what the persister has to store."""

    records: list[Records] = field(default_factory=list[Records])
    batches: list[StateBatch] = field(default_factory=list[StateBatch])
    dead_letters: list[DeadLetters] = field(default_factory=list[DeadLetters])
    """What is to be copied once the change has taken effect and is stored."""

    def add(self, row: Records, state: DeliveryState, *, rejected: bool = False) -> None:
        """Add records that are in this state after the change."""
        self.records.append(row)
        self.batches.append(StateBatch(row.first, row.last, state, row.delivery_count))
        if state is DeliveryState.ARCHIVING:
            self.dead_letters.append(DeadLetters(row.first, row.last, row.delivery_count, rejected))
