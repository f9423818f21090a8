"""The share-partitions of one partition of `__share_group_state`, as its log says; no I/O.

Owns: `StoredShares`. `apply` takes each record once, at a load and when it is committed, so that memory is always what
a replay would give. Epochs that were seen once never fall.

Source: Kafka's ShareCoordinatorShard (replay, generateShareStateRecord), ShareCoordinatorOffsetsManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..errors import ErrorCode, KafkaError
from ..ids import LeaderEpoch, Offset
from .merging import merged
from .records import Snapshot, StoredRecord, Update
from .values import UNINITIALIZED, SharePartition, ShareState, StateSummary

NOT_UPDATED = -1
"""An epoch that a request leaves out."""
FENCED_STATE = "The coordinator rejected the request because the state epoch did not match."
FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."


class StoredShares:
    """States by share-partition."""

    def __init__(self, updates_most: int) -> None:
        self._updates_most = updates_most
        """So many updates follow a snapshot before the next one."""
        self._states: dict[SharePartition, Snapshot] = {}
        self._leader_epochs: dict[SharePartition, LeaderEpoch] = {}
        self._state_epochs: dict[SharePartition, int] = {}
        self._updates: dict[SharePartition, int] = {}
        self._snapshots_at: dict[SharePartition, Offset] = {}
        """Offset of the last snapshot of each."""

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(list(self._states))

    def get(self, share: SharePartition) -> Snapshot | None:
        """The state, if there is one."""
        return self._states.get(share)

    # ---- records -----------------------------------------------------------------------------------

    def apply(self, record: StoredRecord, offset: Offset) -> None:
        """Apply a record that is in the log at `offset`; an update before its snapshot was removed says nothing."""
        share, value = record
        if isinstance(value, Update):
            self._apply_update(share, value)
        elif value is None:
            for table in (self._states, self._leader_epochs, self._state_epochs, self._updates, self._snapshots_at):
                table.pop(share, None)
        else:
            assert offset > self._snapshots_at.get(share, -1), f"{share}: a snapshot at {offset} after a later one"
            self._states[share] = value
            self._leader_epochs[share] = max(value.leader_epoch, self._leader_epochs.get(share, value.leader_epoch))
            self._state_epochs[share] = max(value.state_epoch, self._state_epochs.get(share, value.state_epoch))
            if self._updates.get(share, 0) >= self._updates_most:
                self._updates[share] = 0
            self._snapshots_at[share] = offset

    def _apply_update(self, share: SharePartition, update: Update) -> None:
        state = self._states.get(share)
        if state is None:
            return
        start = state.start_offset if update.start_offset == UNINITIALIZED else update.start_offset
        leader_epoch = state.leader_epoch if update.leader_epoch == NOT_UPDATED else update.leader_epoch
        self._states[share] = replace(
            state,
            leader_epoch=leader_epoch,
            start_offset=start,
            completed=update.completed,
            batches=merged((*state.batches, *update.batches), start),
        )
        self._leader_epochs[share] = max(update.leader_epoch, self._leader_epochs.get(share, update.leader_epoch))
        self._updates[share] = self._updates[share] + 1 if share in self._updates else 0

    @property
    def redundant_below(self) -> Offset:
        """First offset of the log that some state needs; 0 where nothing can be removed."""
        return min(self._snapshots_at.values(), default=Offset(0))

    # ---- decisions ---------------------------------------------------------------------------------

    def initialized(self, share: SharePartition, state_epoch: int, start_offset: Offset, now_ms: int) -> Snapshot:
        """The record of a new state; KafkaError(fenced_state_epoch)."""
        if state_epoch < self._state_epochs.get(share, state_epoch):
            raise KafkaError(ErrorCode.fenced_state_epoch, FENCED_STATE)
        before = self._states.get(share)
        return Snapshot(
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=LeaderEpoch(0),
            start_offset=start_offset,
            completed=-1 if start_offset == UNINITIALIZED else 0,
            created_ms=now_ms,
            written_ms=now_ms,
            batches=(),
        )

    def written(self, share: SharePartition, write: Update, state_epoch: int, now_ms: int) -> Snapshot | Update:
        """The record of a write; KafkaError for a share-partition without a state, and for an old epoch.

        The leader epoch of a write is compared and not stored: `read` stores it.

        A leader's start offset never falls. So a write with a smaller one is a repeated request that a later write has
        overtaken, and everything in it is stored: the start offset stays. At an equal one the greater count of
        completed records stays.
        """
        state = self._states.get(share)
        if state is None:
            text = "Write operation on uninitialized share partition not allowed."
            raise KafkaError(ErrorCode.invalid_request, text)
        if write.leader_epoch < self._leader_epochs[share]:
            raise KafkaError(ErrorCode.fenced_leader_epoch, FENCED_LEADER)
        if state_epoch < self._state_epochs[share]:
            raise KafkaError(ErrorCode.fenced_state_epoch, FENCED_STATE)
        completed = write.completed
        if write.start_offset == state.start_offset:
            completed = max(write.completed, state.completed)
        elif write.start_offset < state.start_offset:
            completed = state.completed
        start = max(write.start_offset, state.start_offset)
        new = replace(write, leader_epoch=state.leader_epoch, start_offset=start, completed=completed)
        return self._record(share, state, new, now_ms)

    def read(
        self, share: SharePartition, leader_epoch: LeaderEpoch, now_ms: int
    ) -> tuple[ShareState, Snapshot | Update | None]:
        """The state for a leader, and the record that stores a leader epoch that is new; KafkaError as `written`."""
        state = self._states.get(share)
        if state is None:
            raise KafkaError(ErrorCode.invalid_request, "Read operation on uninitialized share partition not allowed.")
        known = self._leader_epochs[share]
        if leader_epoch < known:
            raise KafkaError(ErrorCode.fenced_leader_epoch, FENCED_LEADER)
        found = ShareState(state.state_epoch, leader_epoch, state.start_offset, state.batches)
        if leader_epoch == known:
            return found, None
        new = Update(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            completed=state.completed,
            batches=(),
        )
        return found, self._record(share, state, new, now_ms)

    def summary(self, share: SharePartition) -> StateSummary:
        """The state without its batches; that of a share-partition that was never initialized."""
        state = self._states.get(share)
        if state is None:
            return StateSummary(0, LeaderEpoch(0), UNINITIALIZED, -1)
        return StateSummary(state.state_epoch, state.leader_epoch, state.start_offset, state.completed)

    def _record(self, share: SharePartition, state: Snapshot, update: Update, now_ms: int) -> Snapshot | Update:
        """An update, or a snapshot when so many updates have followed the last one."""
        if self._updates.get(share, 0) < self._updates_most:
            batches = merged(update.batches, update.start_offset)
            return replace(update, snapshot_epoch=state.snapshot_epoch, batches=batches)
        return replace(
            state,
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            completed=update.completed,
            created_ms=now_ms,
            written_ms=now_ms,
            batches=merged((*state.batches, *update.batches), update.start_offset),
        )

    def cold(self, now_ms: int, older_ms: int) -> list[tuple[SharePartition, Snapshot]]:
        """New snapshots of the states whose last one is older than `older_ms`, so that the log can be cut.

        Empty where each was rewritten so already: then nothing has changed since.
        """
        rewritten = [state for state in self._states.values() if state.created_ms != state.written_ms]
        if len(rewritten) == len(self._states):
            return []
        return [
            (share, replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now_ms))
            for share, state in self._states.items()
            if now_ms - state.written_ms >= older_ms
        ]
