"""The state of a streams group: what its records add up to.

Owns: members, epochs, target assignments, the topology. `apply` is the only way to change it, in a replay and in
operation, so a replay of the log gives the same state. A `Draft` collects the records of one operation on a copy of the
state; the caller makes the copy the group's state once the records are in the log.

Source: Kafka's StreamsGroup.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import Enum

from ..serial_group import Draft as SerialDraft
from .group_records import (
    CurrentRecord,
    GroupEpochRecord,
    GroupMetadata,
    MemberRecord,
    StreamsRecord,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from .members import CurrentAssignment, MemberMetadata, StreamsMember
from .tasks import NOTHING, TaskSets
from .topology import Topology


class StreamsGroupState(Enum):
    """Kafka's names, as ListGroups and StreamsGroupDescribe show them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


NEW = GroupMetadata(epoch=0, validated_topology_epoch=0)
"""What a group has before its first record."""


class StreamsData:
    """The replayed state of one streams group."""

    __slots__ = ("computed_ms", "instances", "members", "metadata", "target_epoch", "targets", "topology")

    def __init__(self) -> None:
        self.metadata = NEW
        self.target_epoch = 0
        self.computed_ms = 0
        """When the target assignment was computed, on the wall clock; 0: never."""
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSets] = {}
        self.instances: dict[str, str] = {}
        """Instance id -> member id."""
        self.topology: Topology | None = None

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return self.metadata.epoch

    def state(self) -> StreamsGroupState:
        """The state by Kafka's name."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.metadata.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def target(self, member_id: str) -> TaskSets:
        """The target assignment of a member."""
        return self.targets.get(member_id, NOTHING)

    def static_member(self, instance_id: str | None) -> StreamsMember | None:
        """The holder of an instance id."""
        member_id = self.instances.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def copy(self) -> StreamsData:
        """A copy; members and tasks are values, so only the tables are copied."""
        twin = copy(self)
        twin.members, twin.targets = dict(self.members), dict(self.targets)
        twin.instances = dict(self.instances)
        return twin

    def apply(self, record: StreamsRecord) -> None:
        """Apply one record."""
        match record:
            case GroupEpochRecord(value):
                self.metadata = NEW if value is None else value
            case MemberRecord(member_id, value):
                self._set_metadata(member_id, value)
            case TargetEpochRecord(value, computed_ms):
                self.target_epoch, self.computed_ms = value or 0, computed_ms
            case TargetRecord(member_id, value):
                self._set_target(member_id, value)
            case CurrentRecord(member_id, value):
                if value is not None or member_id in self.members:
                    self._set_current(member_id, CurrentAssignment() if value is None else value)
            case TopologyRecord(value):
                self.topology = value

    def _member(self, member_id: str) -> StreamsMember:
        return self.members.get(member_id) or StreamsMember(member_id=member_id)

    def _set_metadata(self, member_id: str, value: MemberMetadata | None) -> None:
        old = self.members.get(member_id)
        instance_id = None if old is None else old.metadata.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
        if value is not None and value.instance_id is not None:
            self.instances[value.instance_id] = member_id
        if value is None:
            self.members.pop(member_id, None)
        else:
            current = self._member(member_id).current
            self.members[member_id] = StreamsMember(member_id=member_id, metadata=value, current=current)

    def _set_target(self, member_id: str, value: TaskSets | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = value

    def _set_current(self, member_id: str, value: CurrentAssignment) -> None:
        metadata = self._member(member_id).metadata
        self.members[member_id] = StreamsMember(member_id=member_id, metadata=metadata, current=value)


class Draft(SerialDraft[StreamsData, StreamsRecord]):
    """The records of one operation on a streams group, and the state after them."""

    __slots__ = ()

    def bury_member(self, member_id: str) -> None:
        """Tombstones of a member, in Kafka's order."""
        self.add(CurrentRecord(member_id, None), TargetRecord(member_id, None), MemberRecord(member_id, None))

    def remove_member(self, member_id: str) -> None:
        """A member is gone: the group epoch rises, and an empty group has assigned all."""
        self.bury_member(member_id)
        metadata = self.state.metadata
        self.add(GroupEpochRecord(metadata._replace(epoch=metadata.epoch + 1)))
        if not self.state.members:
            self.add(TargetEpochRecord(self.state.epoch))


def group_tombstones(state: StreamsData) -> Iterable[StreamsRecord]:
    """Tombstones of a whole group, in Kafka's order."""
    yield from (CurrentRecord(member_id, None) for member_id in state.members)
    yield from (TargetRecord(member_id, None) for member_id in dict.fromkeys((*state.members, *state.targets)))
    yield TargetEpochRecord(None)
    yield from (MemberRecord(member_id, None) for member_id in state.members)
    yield GroupEpochRecord(None)
    yield TopologyRecord(None)
