"""How a broker keeps the state of share-partitions: `Persister`, which group coordinators and partition leaders use.

Each operation raises `KafkaError` with the error that the share coordinator answered, or with
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, … once its attempts ended; the caller decides what its client gets.

Source: Kafka's Persister, DefaultStatePersister, PersisterStateManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..ids import LeaderEpoch, Offset
from .values import SharePartition, ShareState, StateBatch, StateSummary


class Persister(Protocol):
    """Keeps the state of share-partitions at share coordinators."""

    async def initialize(self, share: SharePartition, *, state_epoch: int, start_offset: Offset) -> None:
        """Create the state, or begin it again with a higher state epoch (InitializeShareGroupState)."""
        ...

    async def read(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> ShareState:
        """The state, for the leader of the topic-partition in this epoch (ReadShareGroupState)."""
        ...

    async def write(
        self,
        share: SharePartition,
        *,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Store changes (WriteShareGroupState); returns when all in-sync replicas have them."""
        ...

    async def delete(self, share: SharePartition) -> None:
        """Forget the state; nothing where there is none (DeleteShareGroupState)."""
        ...

    async def summary(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> StateSummary:
        """The state without its batches (ReadShareGroupStateSummary)."""
        ...
