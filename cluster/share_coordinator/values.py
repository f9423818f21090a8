"""A share-partition and its delivery state, as values.

Source: Kafka's SharePartitionKey, PersisterStateBatch, PartitionFactory, SharePartition.RecordState.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ..ids import NO_OFFSET, LeaderEpoch, Offset
from ..wire.topic_ids import UUID, text_of


class DeliveryState(IntEnum):
    """The state of a record of a share-partition that the log of the share coordinator stores."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never stored: a lock does not survive its leader."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Stored while a record is copied to a dead-letter queue (KIP-1191)."""
    ARCHIVED = 4


class SharePartition(NamedTuple):
    """One topic-partition as one share group consumes it."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator, whose hash chooses the partition of `__share_group_state`."""
        return f"{self.group_id}:{text_of(self.topic_id)}:{self.partition}"


class StateBatch(NamedTuple):
    """Records that are in one delivery state and were delivered equally often."""

    first_offset: Offset
    last_offset: Offset
    state: DeliveryState
    delivery_count: int


class ShareState(NamedTuple):
    """What a share-partition stored."""

    state_epoch: int
    """Rises when the offsets of the group are altered, or its state is deleted and made again."""
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """SPSO: all records below are done; -1: not initialized, so that `share.auto.offset.reset` decides."""
    batches: tuple[StateBatch, ...] = ()
    """In the order of offsets, without overlap; records from `start_offset` on that no batch has are available and
    were never delivered."""


class StateSummary(NamedTuple):
    """The state without its batches (ReadShareGroupStateSummary)."""

    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    delivery_complete_count: int = -1
    """Records between start and end that are done; -1: not known (version 0)."""


UNINITIALIZED = NO_OFFSET
"""The start offset of a share-partition whose first record is still to be decided."""
