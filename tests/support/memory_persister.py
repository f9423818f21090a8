"""A persister that keeps the states of share-partitions in memory, with the rules of the share coordinator."""

from __future__ import annotations

from collections.abc import Sequence

from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.share_coordinator.values import SharePartition, ShareState, StateBatch, StateSummary


class MemoryPersister:
    """States by share-partition; `error` is what the next calls raise, once for each call."""

    def __init__(self) -> None:
        self.states: dict[SharePartition, ShareState] = {}
        self.complete: dict[SharePartition, int] = {}
        self.errors: list[ErrorCode] = []
        self.calls: list[tuple[str, SharePartition]] = []

    def _called(self, what: str, share: SharePartition) -> None:
        self.calls.append((what, share))
        if self.errors:
            raise KafkaError(self.errors.pop(0))

    async def initialize(self, share: SharePartition, *, state_epoch: int, start_offset: Offset) -> None:
        self._called("initialize", share)
        before = self.states.get(share)
        if before is not None and before.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.fenced_state_epoch)
        self.states[share] = ShareState(state_epoch, LeaderEpoch(0), start_offset)

    async def read(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> ShareState:
        self._called("read", share)
        return self.states[share]

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
        self._called("write", share)
        self.states[share] = ShareState(state_epoch, leader_epoch, start_offset, tuple(batches))
        self.complete[share] = delivery_complete_count

    async def delete(self, share: SharePartition) -> None:
        self._called("delete", share)
        self.states.pop(share, None)

    async def summary(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> StateSummary:
        self._called("summary", share)
        state = self.states.get(share)
        if state is None:
            return StateSummary(0, LeaderEpoch(0), Offset(-1))
        return StateSummary(state.state_epoch, state.leader_epoch, state.start_offset, self.complete.get(share, 0))
