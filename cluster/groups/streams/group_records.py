"""The records of a streams group as values; `record_formats` has their bytes.

Owns: the value types. A `value` of None is a tombstone.

Source: the StreamsGroup…Key and …Value messages of Apache Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from .members import CurrentAssignment, MemberMetadata
from .tasks import TaskSets
from .topology import Topology

NOT_VALIDATED = -1


class GroupMetadata(NamedTuple):
    """The group epoch, and for what it was set."""

    epoch: int
    metadata_hash: int = 0
    """Hash of the required topics; 0: none exists."""
    validated_topology_epoch: int = NOT_VALIDATED
    """The topology epoch whose topics are all there."""
    assignment_configs: tuple[tuple[str, str], ...] = ()
    """Settings of the last assignment, sorted by key."""


class GroupEpochRecord(NamedTuple):
    """Key 17. Its tombstone removes the group."""

    value: GroupMetadata | None


class MemberRecord(NamedTuple):
    """Key 19. Its tombstone removes the member."""

    member_id: str
    value: MemberMetadata | None


class TargetEpochRecord(NamedTuple):
    """Key 20: the assignment epoch, and when the target assignment was computed."""

    value: int | None
    computed_ms: int = 0
    """Wall clock; 0: none was computed, as in a group without members."""


class TargetRecord(NamedTuple):
    """Key 21: the target assignment of a member."""

    member_id: str
    value: TaskSets | None


class CurrentRecord(NamedTuple):
    """Key 22: the current assignment of a member."""

    member_id: str
    value: CurrentAssignment | None


class TopologyRecord(NamedTuple):
    """Key 23: the topology of the application."""

    value: Topology | None


StreamsRecord = GroupEpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | TopologyRecord
