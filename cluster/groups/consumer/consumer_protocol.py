"""The embedded protocol of classic consumers: subscriptions in JoinGroup, assignments in SyncGroup.

Owns: reading subscriptions (v0 to v3), reading and writing assignments.
May fail: RecordFormatError for bytes that are neither.

Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ...host.seam import Buffer
from ...ids import TopicPartition, by_topic
from ..records import RecordReader
from ..records import decode_assignment as decode_known_assignment
from .members import Partitions, by_topic_id, each
from .subscriptions import TopicView

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
OWNED_FROM, GENERATION_FROM, RACK_FROM = 1, 2, 3


class Subscription(NamedTuple):
    """What a classic consumer subscribes to, and which partitions it has."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    rack_id: str | None


def decode_subscription(metadata: Buffer) -> Subscription:
    """A subscription of any version."""
    reader = RecordReader(metadata)
    version = reader.i16()
    topics = tuple(reader.string() for _ in range(reader.i32()))
    reader.octets()
    owned = reader.partitions() if version >= OWNED_FROM else ()
    if version >= GENERATION_FROM:
        reader.i32()
    rack_id = reader.maybe_string() if version >= RACK_FROM else None
    return Subscription(version, topics, owned, rack_id)


def decode_assignment(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """The partitions of an assignment; none for empty bytes."""
    if not len(assignment):
        return ()
    return decode_known_assignment(assignment)


def encode_assignment(version: int, partitions: Mapping[str, list[int]]) -> bytes:
    """An assignment without user data."""
    out = bytearray(_I16.pack(min(version, RACK_FROM)) + _I32.pack(len(partitions)))
    for topic, numbers in sorted(partitions.items()):
        name = topic.encode()
        out += _I16.pack(len(name)) + name + _I32.pack(len(numbers))
        out += b"".join(_I32.pack(number) for number in sorted(numbers))
    return bytes(out + _I32.pack(-1))


def to_ids(partitions: tuple[TopicPartition, ...], view: TopicView) -> Partitions:
    """Partitions by topic id; topics that do not exist are left out."""
    found = ((view.topic_id(tp.topic), tp.partition) for tp in partitions)
    return by_topic_id((topic_id, number) for topic_id, number in found if topic_id is not None)


def to_names(partitions: Partitions, view: TopicView) -> dict[str, list[int]]:
    """Partitions by topic name; topics that do not exist are left out."""
    named = ((view.topic_name(topic_id), number) for topic_id, number in each(partitions))
    found = by_topic(TopicPartition(name, number) for name, number in named if name is not None)
    return {topic: [tp.partition for tp in rows] for topic, rows in found.items()}
