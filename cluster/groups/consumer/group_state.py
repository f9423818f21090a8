"""The state of a consumer group: what its records add up to.

Owns: members, epochs, target assignments, resolved regular expressions, and which member holds each partition.
`apply` is the only way to change it, in a replay and in operation, so a replay of the log gives the same state.

A `Draft` collects the records of one operation on a copy of the state. The caller makes the copy the group's state once
the records are in the log.

Invariant: `owners` has exactly the partitions that members have assigned or must revoke. A record that gives a
partition to a second member while the first still holds it is a bug of the coordinator that wrote it: the
later record counts, because its log order is the only order that there is.

Source: Kafka's ConsumerGroup and ModernGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import Enum
from typing import TypeVar

from ...wire.topic_ids import UUID
from ..serial_group import Draft as SerialDraft
from .group_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    SubscribedTopicsRecord,
    TargetEpochRecord,
    TargetRecord,
)
from .members import NO_PARTITIONS, ConsumerMember, CurrentAssignment, Partitions

V = TypeVar("V")


class ConsumerGroupState(Enum):
    """Kafka's names, as ListGroups and ConsumerGroupDescribe show them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupData:
    """The replayed state of one consumer group."""

    __slots__ = (
        "computed_ms",
        "epoch",
        "instances",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "target_epoch",
        "targets",
    )

    def __init__(self) -> None:
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.computed_ms = 0
        """When the target assignment was computed, on the wall clock; 0: never."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.instances: dict[str, str] = {}
        """Instance id -> member id."""
        self.owners: dict[tuple[UUID, int], str] = {}
        """Partition -> member that has it assigned or must revoke it."""

    def state(self) -> ConsumerGroupState:
        """The state by Kafka's name."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def target(self, member_id: str) -> Partitions:
        """The target assignment of a member."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has an instance id now."""
        member_id = self.instances.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    def classic_count(self) -> int:
        """Number of members of the classic protocol."""
        return sum(member.is_classic for member in self.members.values())

    def copy(self) -> GroupData:
        """A copy; members and partitions are values, so only the tables are copied."""
        twin = copy(self)
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.regexes, twin.instances = dict(self.regexes), dict(self.instances)
        twin.owners = dict(self.owners)
        return twin

    # ---- records ---------------------------------------------------------------------------------

    def apply(self, record: ConsumerRecord) -> None:
        """Apply one record."""
        match record:
            case GroupEpochRecord(value):
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case SubscribedTopicsRecord():
                pass
            case MemberRecord():
                self._apply_member(record)
            case TargetEpochRecord(value, computed_ms):
                self.target_epoch, self.computed_ms = value or 0, computed_ms
            case TargetRecord(member_id, value):
                _put(self.targets, member_id, value)
            case CurrentRecord(member_id, value):
                self._set_current(member_id, value)
            case RegexRecord(regex, value):
                _put(self.regexes, regex, value)

    def _apply_member(self, record: MemberRecord) -> None:
        old = self.members.get(record.member_id)
        if old is not None and self.instances.get(old.instance_id or "") == record.member_id:
            del self.instances[old.instance_id or ""]
        if record.value is None:
            self._set_current(record.member_id, None)
            self.members.pop(record.member_id, None)
            return
        current = CurrentAssignment() if old is None else old.current
        member = ConsumerMember(member_id=record.member_id, metadata=record.value, current=current)
        self.members[record.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = record.member_id

    def _set_current(self, member_id: str, value: CurrentAssignment | None) -> None:
        old = self.members.get(member_id)
        for partition in () if old is None else old.held():
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        if old is None and value is None:
            return
        member = ConsumerMember(
            member_id=member_id,
            metadata=ConsumerMember(member_id=member_id).metadata if old is None else old.metadata,
            current=CurrentAssignment() if value is None else value,
        )
        self.members[member_id] = member
        for partition in member.held():
            self.owners[partition] = member_id


class Draft(SerialDraft[GroupData, ConsumerRecord]):
    """The records of one operation on a consumer group, and the state after them."""

    __slots__ = ()

    def remove_member(self, member_id: str) -> None:
        """Tombstones of a member, in Kafka's order."""
        self.add(CurrentRecord(member_id, None), TargetRecord(member_id, None), MemberRecord(member_id, None))


def group_tombstones(state: GroupData) -> Iterable[ConsumerRecord]:
    """Tombstones of a whole group, in Kafka's order."""
    yield from (CurrentRecord(member_id, None) for member_id in state.members)
    yield from (TargetRecord(member_id, None) for member_id in state.targets)
    yield TargetEpochRecord(None)
    yield from (MemberRecord(member_id, None) for member_id in state.members)
    yield from (RegexRecord(regex, None) for regex in state.regexes)
    yield GroupEpochRecord(None)


def _put(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
