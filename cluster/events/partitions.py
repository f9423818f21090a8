"""Events of one replica of a partition: roles, ISRs and offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvent(TraceEvent):
    """An event of a partition."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoleTaken(PartitionEvent):
    topic_id: str | None = None
    """This, `leo`, `hw` and `cause` may be absent in the traces of early versions."""
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leo: int | None = None
    hw: int | None = None
    cause: str | None = None
    """The request that made the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader(_RoleTaken):
    """A broker became leader, or leader of a later epoch; by this broker."""

    EVENT: ClassVar[str] = "partition.leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFollower(_RoleTaken):
    """A broker became follower; by this broker."""

    EVENT: ClassVar[str] = "partition.follower"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChanged(PartitionEvent):
    """The committed ISR is another; by the leader."""

    EVENT: ClassVar[str] = "partition.isr"
    leader_epoch: int
    isr: tuple[int, ...]
    cause: str | None = None
    """`expand`, `shrink` or `leader-and-isr`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrExpansionProposed(PartitionEvent):
    """A leader proposes to add a follower to the ISR; by the leader."""

    EVENT: ClassVar[str] = "partition.isr-expansion"
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    """As proposed."""
    added: int
    live: tuple[int, ...]
    """The replicas that are live by the leader's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection(PartitionEvent):
    """The new leader is outside of the ISR; by the controller, before it writes that."""

    EVENT: ClassVar[str] = "partition.unclean"
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    """The ISR before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OffsetsMoved(PartitionEvent):
    hw: int
    leo: int
    cause: str
    """Of the last change that the event stands for (`cluster/replication/offset_trace.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWatermarkMoved(_OffsetsMoved):
    """The high watermark moved; by each replica, at most once in `harrow.trace.hw.interval.ms`."""

    EVENT: ClassVar[str] = "partition.hw"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEndMoved(_OffsetsMoved):
    """The log end offset moved; by each replica, at most once in `harrow.trace.hw.interval.ms`."""

    EVENT: ClassVar[str] = "partition.leo"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerLogEndMoved(PartitionEvent):
    """A follower fetched from another offset; by the leader, with `harrow.trace.hw.interval.ms` = 0 only."""

    EVENT: ClassVar[str] = "partition.follower_leo"
    node: int
    leo: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTruncated(PartitionEvent):
    """A follower removed records from the end of its log."""

    EVENT: ClassVar[str] = "partition.truncated"
    KEYS = {"from_offset": "from", "to_offset": "to"}  # noqa: RUF012
    cause: str | None = None
    """The truncation rule with what led to it."""
    from_offset: int
    """Where the log ended before."""
    to_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpMissed(PartitionEvent):
    """A delayed operation that could have completed waited until its deadline."""

    EVENT: ClassVar[str] = "purgatory.missed"
    purgatory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignmentStep(PartitionEvent):
    """A reassignment went on; by the controller."""

    EVENT: ClassVar[str] = "partition.reassignment"
    step: str
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
