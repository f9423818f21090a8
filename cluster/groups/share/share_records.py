"""The records of a share group as values; `record_formats` has their bytes.

Owns: the value types. A `value` of None is a tombstone.

Source: the ShareGroup…Key and …Value messages of Apache Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from ..consumer.group_records import GroupEpoch
from ..consumer.members import Partitions
from .members import ShareAssignment, ShareMetadata, StatePartitions


class ShareMemberRecord(NamedTuple):
    """Key 10. Its tombstone removes the member."""

    member_id: str
    value: ShareMetadata | None


class ShareEpochRecord(NamedTuple):
    """Key 11. Its tombstone removes the group."""

    value: GroupEpoch | None


class ShareTargetEpochRecord(NamedTuple):
    """Key 12: the assignment epoch, and when the target assignment was computed."""

    value: int | None
    computed_ms: int = 0
    """Wall clock; 0: none was computed, as in a group without members."""


class ShareTargetRecord(NamedTuple):
    """Key 13: the target assignment of a member."""

    member_id: str
    value: Partitions | None


class ShareCurrentRecord(NamedTuple):
    """Key 14: the current assignment of a member."""

    member_id: str
    value: ShareAssignment | None


class StatePartitionsRecord(NamedTuple):
    """Key 15: which share-partitions have a delivery state."""

    value: StatePartitions | None


ShareRecord = (
    ShareMemberRecord
    | ShareEpochRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareCurrentRecord
    | StatePartitionsRecord
)
