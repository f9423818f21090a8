"""The embedded protocol of classic consumers: subscriptions in JoinGroup, assignments in SyncGroup.

Owns: reading subscriptions (v0 to v3), reading and writing assignments; clients of Harrow's write subscriptions.
May fail: RecordFormatError for bytes that are neither.

Source: ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...coordinators import RecordFormatError
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
    if version < 0:
        raise RecordFormatError(f"a subscription of version {version}")
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


def has_user_data(assignment: Buffer) -> bool:
    """True for an assignment with data of the assignor's own, which only a classic group keeps."""
    if not len(assignment):
        return False
    reader = RecordReader(assignment)
    reader.i16()
    reader.partitions()
    return bool(reader.octets())


def encode_subscription(topics: Sequence[str], owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """A subscription without user data: version 0, or with what the member owns version 1."""
    version = 0 if owned is None else OWNED_FROM
    head = _I16.pack(version) + _I32.pack(len(topics)) + b"".join(map(_text, topics))
    return head + _I32.pack(-1) + (b"" if owned is None else _partitions(owned))


def encode_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment without user data."""
    ordered = {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}
    return _I16.pack(min(version, RACK_FROM)) + _partitions(ordered) + _I32.pack(-1)


def _text(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def _partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    out = bytearray(_I32.pack(len(partitions)))
    for topic, numbers in partitions.items():
        out += _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(out)


def to_ids(partitions: tuple[TopicPartition, ...], view: TopicView) -> Partitions:
    """Partitions by topic id; topics that do not exist are left out."""
    found = ((view.topic_id(tp.topic), tp.partition) for tp in partitions)
    return by_topic_id((topic_id, number) for topic_id, number in found if topic_id is not None)


def to_names(partitions: Partitions, view: TopicView) -> dict[str, list[int]]:
    """Partitions by topic name; topics that do not exist are left out."""
    named = ((view.topic_name(topic_id), number) for topic_id, number in each(partitions))
    found = by_topic(TopicPartition(name, number) for name, number in named if name is not None)
    return {topic: [tp.partition for tp in rows] for topic, rows in found.items()}
