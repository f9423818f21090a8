"""The records of a consumer group as values; `record_formats` has their bytes.

Owns: the value types. A `value` of None is a tombstone.

Source: the ConsumerGroup…Key and …Value messages of Apache Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from .members import CurrentAssignment, MemberMetadata, Partitions


class GroupEpoch(NamedTuple):
    """The group epoch, and the hash of the subscribed topics for which it was set; 0: no hash."""

    epoch: int
    metadata_hash: int = 0


class ResolvedRegex(NamedTuple):
    """Topics that matched a regular expression, sorted."""

    topics: tuple[str, ...]
    version: int = 0
    timestamp_ms: int = -1


class GroupEpochRecord(NamedTuple):
    """Key 3. Its tombstone removes the group."""

    value: GroupEpoch | None


class SubscribedTopicsRecord(NamedTuple):
    """Key 4. Kafka 4.1 and newer write only its tombstone; the group epoch has the hash instead."""

    value: None = None


class MemberRecord(NamedTuple):
    """Key 5. Its tombstone removes the member."""

    member_id: str
    value: MemberMetadata | None


class TargetEpochRecord(NamedTuple):
    """Key 6: the assignment epoch, and when the target assignment was computed."""

    value: int | None
    computed_ms: int = 0
    """Wall clock; 0: none was computed, as in a group without members."""


class TargetRecord(NamedTuple):
    """Key 7: the target assignment of a member."""

    member_id: str
    value: Partitions | None


class CurrentRecord(NamedTuple):
    """Key 8: the current assignment of a member."""

    member_id: str
    value: CurrentAssignment | None


class RegexRecord(NamedTuple):
    """Key 16: a resolved regular expression."""

    regex: str
    value: ResolvedRegex | None


ConsumerRecord = (
    GroupEpochRecord
    | SubscribedTopicsRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)
