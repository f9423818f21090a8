"""One member of a share group, and the share-partitions of the group by their state.

Owns: value types. Members are frozen: a changed member is a new value.

Source: Kafka's ShareGroupMember, ShareGroupStatePartitionMetadataInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...wire.topic_ids import UUID
from ..consumer.members import NO_PARTITIONS, Partitions

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMetadata:
    """What a member says about itself: the value of its metadata record."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Subscribed names, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAssignment:
    """What a member has: the value of its record of the current assignment."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: int = 0
    """Kafka's MemberState as the record has it; members of share groups are always 0, STABLE."""
    assigned: Partitions = field(default_factory=dict[UUID, frozenset[int]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member of a share group."""

    member_id: str
    metadata: ShareMetadata = ShareMetadata()
    current: ShareAssignment = ShareAssignment()

    @property
    def epoch(self) -> int:
        """The member epoch."""
        return self.current.epoch


class NamedPartitions(NamedTuple):
    """Partitions of one topic, with its name when the record was written."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[UUID, NamedPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePartitions:
    """Which share-partitions have a delivery state: the value of the record of key 15."""

    initializing: Topics = field(default_factory=dict[UUID, NamedPartitions])
    """`Persister.initialize` was called, and may have ended without this coordinator."""
    initialized: Topics = field(default_factory=dict[UUID, NamedPartitions])
    deleting: Mapping[UUID, str] = field(default_factory=dict[UUID, str])
    """Topic id -> name: `Persister.delete` was called for all its partitions."""

    def assignable(self) -> Partitions:
        """The initialized partitions."""
        return {topic_id: row.partitions for topic_id, row in self.initialized.items()} or NO_PARTITIONS


NO_STATE = StatePartitions()
