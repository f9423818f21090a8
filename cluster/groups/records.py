"""Keys and values of `__consumer_offsets` in Kafka's own binary format (G1).

Owns: encoding and decoding of the classic records; no log, no state. Every key and value begins with an
int16 version; strings are int16-prefixed UTF-8 (-1: null), byte strings int32-prefixed.

    offset commit   key v1 {group, topic, partition}     value v3 {offset, leader epoch, metadata, timestamp}
    group metadata  key v2 {group}                       value v3 {protocol type, generation, protocol, leader,
                                                                   since, members}

Value versions 0 to 3 are read, of offsets also version 4, which Kafka 4.2 writes; a null value is a tombstone. Keys of
consumer groups (KIP-848) decode to `ConsumerKey`, and `consumer/record_formats.py` reads their values; those of share
groups (KIP-932) to `ShareKey` (`share/record_formats.py`), those of streams groups (KIP-1071) to `StreamsKey`
(`streams/record_formats.py`).

May fail: `RecordFormatError` for bytes that are no such record; the coordinator loader reports and skips the record.
Source: OffsetCommitKey/Value.json and GroupMetadataKey/Value.json of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..coordinators import RecordFormatError
from ..coordinators.flexible_fields import FlexibleReader
from ..coordinators.record_fields import FieldReader, FieldWriter
from ..host.seam import Buffer
from ..ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose subscriptions and assignments the broker can read."""

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
CONSUMER_KEYS = frozenset((3, 4, 5, 6, 7, 8, 16))
CONSUMER_KEYS_WITH_NAME = frozenset((5, 7, 8, 16))
"""Keys with a member id or a regular expression."""
SHARE_KEYS = frozenset((10, 11, 12, 13, 14, 15))
SHARE_KEYS_WITH_NAME = frozenset((10, 13, 14))
STREAMS_KEYS = frozenset((17, 19, 20, 21, 22, 23))
STREAMS_KEYS_WITH_NAME = frozenset((19, 21, 22))
"""Keys with a member id."""
VALUE_VERSION = 3
FLEXIBLE_VALUE_VERSION = 4
"""Version of an offset's value with varint lengths, and the topic's id as a tagged field."""
VALUE_VERSION_WITH_EXPIRATION = 1
"""The only version of an offset's value with an expiration timestamp."""


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    """Key of a group's metadata."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetValue:
    """A committed offset. `timestamp_ms` is the wall time of the commit.

    `expire_timestamp_ms` is the wall time of its own expiration where an old client requested it (OffsetCommit v2 to
    v4, value v1); -1: it expires as the broker's `offsets.retention.minutes` says (KIP-211).
    """

    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""
    timestamp_ms: int = -1
    expire_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    """One member at the time when the assignment was written."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    """One generation of a group. `since_ms` is the wall time of its last change of state."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int = -1
    members: Sequence[MemberValue] = ()


class ConsumerKey(NamedTuple):
    """Key of a record of a consumer group."""

    group: str
    kind: int
    name: str
    """Member id or regular expression; "" where the type has none."""


class ShareKey(NamedTuple):
    """Key of a record of a share group."""

    group: str
    kind: int
    name: str
    """Member id; "" where the type has none."""


class StreamsKey(NamedTuple):
    """Key of a record of a streams group."""

    group: str
    kind: int
    name: str
    """Member id; "" where the type has none."""


class _Writer(FieldWriter):
    """Appends fields of the classic format."""

    __slots__ = ()

    def octets(self, value: bytes) -> None:
        self.i32(len(value))
        self.raw(value)


class RecordReader(FieldReader):
    """Reads fields of the classic format."""

    __slots__ = ()

    def maybe_string(self) -> str | None:
        """A text or null."""
        return self.text(self.i16())

    def string(self) -> str:
        """A text; null counts as empty."""
        return self.maybe_string() or ""

    def octets(self) -> bytes:
        """Bytes; null counts as empty."""
        size = self.i32()
        return b"" if size < 0 else self.raw(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions by topic, as the embedded protocol of consumers has them."""
        found: list[TopicPartition] = []
        for _ in range(self.i32()):
            topic = self.string()
            found += [TopicPartition(topic, self.i32()) for _ in range(self.i32())]
        return tuple(found)


def encode_offset_key(group: str, topic_partition: TopicPartition) -> bytes:
    """Key v1 of a committed offset."""
    out = _Writer(1)
    out.classic_string(group)
    out.classic_string(topic_partition.topic)
    out.i32(topic_partition.partition)
    return out.bytes()


def encode_group_key(group: str) -> bytes:
    """Key v2 of a group's metadata."""
    out = _Writer(GROUP_KEY_VERSION)
    out.classic_string(group)
    return out.bytes()


def decode_key(key: Buffer) -> OffsetKey | GroupKey | ConsumerKey | ShareKey | StreamsKey | None:
    """The key of a record; None for types of other groups."""
    reader = RecordReader(key)
    version = reader.i16()
    if version in OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.string(), TopicPartition(reader.string(), reader.i32()))
    if version == GROUP_KEY_VERSION:
        return GroupKey(reader.string())
    if version in CONSUMER_KEYS:
        group = reader.string()
        name = reader.string() if version in CONSUMER_KEYS_WITH_NAME else ""
        return ConsumerKey(group, version, name)
    if version in SHARE_KEYS:
        group = reader.string()
        return ShareKey(group, version, reader.string() if version in SHARE_KEYS_WITH_NAME else "")
    if version in STREAMS_KEYS:
        group = reader.string()
        return StreamsKey(group, version, reader.string() if version in STREAMS_KEYS_WITH_NAME else "")
    return None


def encode_offset_value(value: OffsetValue) -> bytes:
    """Value v3 of a committed offset; v1, which has no leader epoch, when it has an expiration of its own."""
    expires = value.expire_timestamp_ms >= 0
    out = _Writer(VALUE_VERSION_WITH_EXPIRATION if expires else VALUE_VERSION)
    out.i64(value.offset)
    if not expires:
        out.i32(value.leader_epoch)
    out.classic_string(value.metadata)
    out.i64(value.timestamp_ms)
    if expires:
        out.i64(value.expire_timestamp_ms)
    return out.bytes()


def decode_offset_value(value: Buffer) -> OffsetValue:
    """A value of version 0 to 3; a field that the version lacks has its default."""
    if int.from_bytes(value[:2]) == FLEXIBLE_VALUE_VERSION:
        return _decode_flexible_offset(value)
    reader = RecordReader(value)
    version = _value_version(reader)
    offset = reader.i64()
    epoch = reader.i32() if version >= 3 else NO_EPOCH
    return OffsetValue(
        offset=Offset(offset),
        leader_epoch=LeaderEpoch(epoch),
        metadata=reader.string(),
        timestamp_ms=reader.i64(),
        expire_timestamp_ms=reader.i64() if version == VALUE_VERSION_WITH_EXPIRATION else -1,
    )


def _decode_flexible_offset(value: Buffer) -> OffsetValue:
    reader = FlexibleReader(value)
    reader.i16()
    return OffsetValue(
        offset=Offset(reader.i64()),
        leader_epoch=LeaderEpoch(reader.i32()),
        metadata=reader.string() or "",
        timestamp_ms=reader.i64(),
    )


def encode_group_value(value: GroupValue) -> bytes:
    """Value v3 of a group's metadata."""
    out = _Writer(VALUE_VERSION)
    out.classic_string(value.protocol_type)
    out.i32(value.generation)
    out.classic_string(value.protocol)
    out.classic_string(value.leader)
    out.i64(value.since_ms)
    out.i32(len(value.members))
    for member in value.members:
        out.classic_string(member.member_id)
        out.classic_string(member.group_instance_id)
        out.classic_string(member.client_id)
        out.classic_string(member.client_host)
        out.i32(member.rebalance_timeout_ms)
        out.i32(member.session_timeout_ms)
        out.octets(member.subscription)
        out.octets(member.assignment)
    return out.bytes()


def decode_group_value(value: Buffer) -> GroupValue:
    """A value of version 0 to 3; a field that the version lacks has its default."""
    reader = RecordReader(value)
    version = _value_version(reader)
    protocol_type = reader.string()
    generation = reader.i32()
    protocol = reader.maybe_string()
    leader = reader.maybe_string()
    since_ms = reader.i64() if version >= 2 else -1
    members = tuple(_decode_member(reader, version) for _ in range(reader.i32()))
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        since_ms=since_ms,
        members=members,
    )


def _decode_member(reader: RecordReader, version: int) -> MemberValue:
    member_id = reader.string()
    instance = reader.maybe_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_ms = reader.i32() if version >= 1 else -1
    session_ms = reader.i32()
    return MemberValue(
        member_id=member_id,
        group_instance_id=instance,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        session_timeout_ms=session_ms,
        subscription=reader.octets(),
        assignment=reader.octets(),
    )


def decode_subscription(metadata: Buffer) -> list[str]:
    """The topics of a consumer's subscription (ConsumerProtocolSubscription; every version begins with them)."""
    reader = RecordReader(metadata)
    reader.i16()
    return [reader.string() for _ in range(reader.i32())]


def decode_assignment(assignment: Buffer) -> tuple[TopicPartition, ...]:
    """The partitions of a consumer's assignment (ConsumerProtocolAssignment; every version begins with them)."""
    reader = RecordReader(assignment)
    reader.i16()
    return reader.partitions()


def _value_version(reader: RecordReader) -> int:
    version = reader.i16()
    if not 0 <= version <= VALUE_VERSION:
        raise RecordFormatError(f"value version {version}; 0 to {VALUE_VERSION} are known")
    return version
