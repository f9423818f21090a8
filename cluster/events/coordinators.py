"""Events of the coordinators: groups and transactions, with the partition of the internal topic that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanged(TraceEvent):
    """The state of a group changed, or the epoch of a group of KIP-848."""

    EVENT: ClassVar[str] = "group.state"
    group: str
    partition: int
    state: str
    """Kafka's name."""
    generation: int
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoaded(TraceEvent):
    """A coordinator loaded a partition with groups."""

    EVENT: ClassVar[str] = "group.loaded"
    partition: int
    groups: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberExpired(TraceEvent):
    """A group lost a member whose session, or whose time to rebalance, had passed: the member did not leave."""

    EVENT: ClassVar[str] = "group.member-expired"
    group: str
    partition: int
    member: str
    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsRemoved(TraceEvent):
    """Offsets of a group were removed, because they expired or their topics were deleted."""

    EVENT: ClassVar[str] = "group.offsets-removed"
    group: str
    partition: int
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionChanged(TraceEvent):
    """The state of a transaction changed."""

    EVENT: ClassVar[str] = "transaction.state"
    transactional_id: str
    state: str
    """Kafka's name."""
    producer_id: int
    epoch: int
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareStatesLoaded(TraceEvent):
    """A share coordinator loaded a partition with states of share-partitions."""

    EVENT: ClassVar[str] = "share-states.loaded"
    partition: int
    states: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsLoaded(TraceEvent):
    """A coordinator loaded a partition with transactions."""

    EVENT: ClassVar[str] = "transactions.loaded"
    partition: int
    transactions: int
    took_ms: int
