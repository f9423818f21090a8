"""The state of a share group: what its records add up to.

Owns: members, epochs, target assignments, and which share-partitions have a delivery state. `apply` is the only way to
change it, in a replay and in operation, so a replay of the log gives the same state.

Source: Kafka's ShareGroup and ModernGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from enum import Enum

from ..consumer.members import NO_PARTITIONS, Partitions
from ..serial_group import Draft
from .members import NO_STATE, ShareAssignment, ShareMember, StatePartitions
from .share_records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)


class ShareGroupState(Enum):
    """Kafka's names, as ListGroups and ShareGroupDescribe show them."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


NEW_EPOCH = 1
"""The epoch of a group and of its assignment before its first subscription, which is a change."""


class ShareGroupData:
    """The replayed state of one share group."""

    __slots__ = ("computed_ms", "epoch", "members", "metadata_hash", "shares", "target_epoch", "targets")

    def __init__(self) -> None:
        self.epoch = NEW_EPOCH
        self.metadata_hash = 0
        self.target_epoch = NEW_EPOCH
        self.computed_ms = 0
        """When the target assignment was computed, on the wall clock; 0: never."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.shares: StatePartitions | None = None
        """Which share-partitions have a delivery state; None: no record."""

    def state(self) -> ShareGroupState:
        """The state by Kafka's name."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def target(self, member_id: str) -> Partitions:
        """The target assignment of a member."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def state_partitions(self) -> StatePartitions:
        """Which share-partitions have a delivery state."""
        return NO_STATE if self.shares is None else self.shares

    def topics(self) -> frozenset[str]:
        """Every topic that a member subscribes to, existing or not."""
        return frozenset(name for member in self.members.values() for name in member.metadata.topics)

    def copy(self) -> ShareGroupData:
        """A copy; members and partitions are values, so only the tables are copied."""
        twin = copy(self)
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        return twin

    def apply(self, record: ShareRecord) -> None:
        """Apply one record."""
        match record:
            case ShareMemberRecord(member_id, None):
                self.members.pop(member_id, None)
            case ShareMemberRecord(member_id, metadata) if metadata is not None:
                member = self.members.get(member_id) or ShareMember(member_id=member_id)
                self.members[member_id] = replace(member, metadata=metadata)
            case ShareEpochRecord(value):
                self.epoch = NEW_EPOCH if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case ShareTargetEpochRecord(value, computed_ms):
                self.target_epoch = NEW_EPOCH if value is None else value
                self.computed_ms = computed_ms
            case ShareTargetRecord(member_id, None):
                self.targets.pop(member_id, None)
            case ShareTargetRecord(member_id, target) if target is not None:
                self.targets[member_id] = target
            case ShareCurrentRecord(member_id, value):
                self._set_current(member_id, value)
            case StatePartitionsRecord(value):
                self.shares = value
            case _:
                raise AssertionError(record)

    def _set_current(self, member_id: str, value: ShareAssignment | None) -> None:
        member = self.members.get(member_id)
        if member is None and value is None:
            return
        member = member or ShareMember(member_id=member_id)
        self.members[member_id] = replace(member, current=ShareAssignment() if value is None else value)


class ShareDraft(Draft[ShareGroupData, ShareRecord]):
    """The records of one operation on a share group, and the state after them."""

    __slots__ = ()

    def remove_member(self, member_id: str) -> None:
        """Tombstones of a member, in Kafka's order."""
        self.add(
            ShareCurrentRecord(member_id, None), ShareTargetRecord(member_id, None), ShareMemberRecord(member_id, None)
        )


def share_tombstones(state: ShareGroupData) -> Iterable[ShareRecord]:
    """Tombstones of a whole group, in Kafka's order."""
    yield from (ShareCurrentRecord(member_id, None) for member_id in state.members)
    yield from (ShareTargetRecord(member_id, None) for member_id in state.targets)
    yield ShareTargetEpochRecord(None)
    yield from (ShareMemberRecord(member_id, None) for member_id in state.members)
    yield StatePartitionsRecord(None)
    yield ShareEpochRecord(None)
