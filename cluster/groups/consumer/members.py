"""One member of a consumer group, and partitions by topic id.

Owns: value types, without behaviour except look-ups. Members are frozen: a changed member is a new value.

Source: Kafka's ConsumerGroupMember, MemberState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ...wire.topic_ids import UUID

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""Epoch of a static member that left and is expected to return within its session timeout."""

Partitions = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions; no topic has an empty set."""
NO_PARTITIONS: Partitions = {}


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before its epoch rises."""
    UNRELEASED_PARTITIONS = 2
    """The member is at the assignment epoch and waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127


class ClassicProtocol(NamedTuple):
    """An assignor that a classic member supports, with its subscription in the client's own encoding."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """What a member of the classic protocol said in its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member says about itself: the value of its metadata record."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Subscribed names, sorted."""
    regex: str | None = None
    """Subscribed regular expression; None or "" where there is none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    """Set while the member uses the classic protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """What a member has: the value of its record of the current assignment."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = field(default_factory=dict[UUID, frozenset[int]])
    revoking: Partitions = field(default_factory=dict[UUID, frozenset[int]])
    """Partitions that the member must revoke; no other member gets them before."""
    epochs: Mapping[tuple[UUID, int], int] = field(default_factory=dict[tuple[UUID, int], int])
    """Of each partition that is assigned or must be revoked: the epoch in which the member got it (KIP-1251)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member of a consumer group."""

    member_id: str
    metadata: MemberMetadata = MemberMetadata()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def epoch(self) -> int:
        """The member epoch."""
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        """The static instance id."""
        return self.metadata.instance_id

    @property
    def is_classic(self) -> bool:
        """True while the member uses the classic protocol."""
        return self.metadata.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True when nothing is left to do for this member."""
        return self.current.state is MemberState.STABLE and self.epoch == assignment_epoch

    def has_since(self, partition: tuple[UUID, int]) -> int | None:
        """The epoch in which the member got a partition; None for one that it neither has nor must revoke."""
        return self.current.epochs.get(partition)

    def held(self) -> Iterable[tuple[UUID, int]]:
        """Every partition that no other member may get: assigned, or not yet revoked."""
        yield from each(self.current.assigned)
        yield from each(self.current.revoking)


def each(partitions: Partitions) -> Iterable[tuple[UUID, int]]:
    """Every partition."""
    return ((topic_id, number) for topic_id, numbers in partitions.items() for number in numbers)


def by_topic_id(partitions: Iterable[tuple[UUID, int]]) -> dict[UUID, frozenset[int]]:
    """The inverse of `each`."""
    found: dict[UUID, set[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, set()).add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}
