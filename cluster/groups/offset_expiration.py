"""Which committed offsets of a group have expired (KIP-211).

Owns: the rule; no clock, no log. An offset expires `offsets.retention.minutes` after a base time, unless a commit of
it is in progress:

| group                                     | base time                                             | topics          |
| ----------------------------------------- | ----------------------------------------------------- | --------------- |
| no protocol type (only simple commits)    | the commit                                            | all             |
| Empty, with a protocol type               | when the group became Empty; the commit where unknown | all             |
| Stable, `consumer`, subscriptions known   | the commit                                            | not subscribed  |
| consumer group (KIP-848)                  | the commit                                            | not subscribed  |
| streams group (KIP-1071)                  | the commit                                            | not a source    |
| any other                                 | none: nothing expires                                 |                 |

An offset that was committed with an expiration time of its own (OffsetCommit v2 to v4) expires then instead.

A group that is Empty and has no offsets left is removed at the next check.

Source: Kafka's ClassicGroup.offsetExpirationCondition, OffsetExpirationConditionImpl,
OffsetMetadataManager.cleanupExpiredOffsets, GroupMetadataManager.maybeDeleteGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ids import TopicPartition
from .hosted_group import HostedGroup
from .membership import Group
from .records import CONSUMER_PROTOCOL, OffsetValue
from .states import GroupState
from .subscriptions import subscribed_topics

BaseTime = Callable[[OffsetValue], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRetention:
    """The broker's settings: how long an offset is kept, and how often expired ones are looked for."""

    retention_ms: int
    check_interval_ms: int

    def expired_offsets(self, hosted: HostedGroup, wall_ms: int) -> list[TopicPartition]:
        """Partitions of the group whose committed offset has expired at `wall_ms`."""
        base_time = self._base_time(hosted)
        if base_time is None:
            return []
        subscribed = self.kept_topics(hosted) or frozenset()
        offsets = hosted.offsets
        return [
            tp
            for tp, value in offsets.items()
            if tp.topic not in subscribed
            and not offsets.is_pending(tp)
            and _is_expired(value, base_time, wall_ms, self.retention_ms)
        ]

    def kept_topics(self, hosted: HostedGroup) -> frozenset[str] | None:
        """Topics that the group subscribes to, whose offsets do not expire; None where the broker cannot know."""
        return subscribed_topics(hosted)

    def subscriptions_count(self, group: Group) -> bool:
        """Whether `kept_topics` of a classic group with members says what it subscribes to (rule of KAFKA-13636)."""
        return group.state is GroupState.STABLE

    def _base_time(self, hosted: HostedGroup) -> BaseTime | None:
        group = hosted.group
        if hosted.consumer is not None or hosted.streams is not None:
            return _commit_time
        if group.members.protocol_type is None:
            return _commit_time
        if group.state is GroupState.EMPTY:
            since_ms = hosted.since_ms
            return _commit_time if since_ms is None else lambda _value: since_ms
        readable = group.members.protocol_type == CONSUMER_PROTOCOL
        if readable and self.subscriptions_count(group) and self.kept_topics(hosted) is not None:
            return _commit_time
        return None


def is_removable(hosted: HostedGroup, expired: int) -> bool:
    """True for an Empty group that has no offsets besides the `expired` ones, and waits for nothing.

    A share group has no offsets here and stays until it is deleted, as in Kafka.
    """
    if hosted.share is not None:
        return False
    group, offsets = hosted.group, hosted.offsets
    waits = offsets.in_flight or group.next_deadline_ms() is not None
    return hosted.is_empty and len(offsets) == expired and not waits


def _commit_time(value: OffsetValue) -> int:
    return value.timestamp_ms


def _is_expired(value: OffsetValue, base_time: BaseTime, wall_ms: int, retention_ms: int) -> bool:
    if value.expire_timestamp_ms >= 0:
        return wall_ms >= value.expire_timestamp_ms
    return wall_ms - base_time(value) >= retention_ms
