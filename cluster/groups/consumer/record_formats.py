"""Keys and values of a consumer group's records in Kafka's own binary format (G1).

Owns: encoding and decoding. A key begins with an int16 type; its strings are int16-prefixed. Values have version 0 of
a flexible format: varint lengths, and tagged fields at the end of each structure.

| type | key after the type | value                                                                |
| ---- | ------------------ | -------------------------------------------------------------------- |
| 3    | group              | epoch, tag 0: hash of the subscribed topics                            |
| 4    | group              | (written up to Kafka 4.0; ignored)                                     |
| 5    | group, member      | instance, rack, client, host, topics, regex, rebalance timeout,        |
|      |                    | assignor, tag 0: classic member                                        |
| 6    | group              | assignment epoch, tag 0: when the assignment was computed              |
| 7    | group, member      | target assignment                                                      |
| 8    | group, member      | epoch, previous epoch, state, assigned partitions, partitions to       |
|      |                    | revoke; tag 0 of each topic: the epoch of each partition (KIP-1251)    |
| 16   | group, regex       | topics, metadata version, time                                         |

The hash is Harrow's own: a coordinator of Apache Kafka finds another hash at the first heartbeat, raises the group
epoch once, and computes the assignment again; so does Harrow on a partition that Kafka wrote.

May fail: RecordFormatError for bytes that are no such record.
Source: the ConsumerGroup…Key/Value.json files of Apache Kafka; KIP-482 (tagged fields).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...coordinators import KeyValue, RecordFormatError
from ...coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ...host.seam import Buffer
from ...wire.topic_ids import UUID
from ..group_fields import (
    encode_key,
    read_partitions,
    read_target_epoch,
    read_value,
    write_partitions,
    write_target_epoch,
)
from .group_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    RegexRecord,
    ResolvedRegex,
    SubscribedTopicsRecord,
    TargetEpochRecord,
    TargetRecord,
)
from .members import ClassicMetadata, ClassicProtocol, CurrentAssignment, MemberMetadata, MemberState

GROUP_EPOCH, SUBSCRIBED_TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16


def encode_record(group_id: str, record: ConsumerRecord) -> KeyValue:
    """Key and value of a record."""
    kind, name = _key_of(record)
    return encode_key(kind, group_id, name), _encode_value(record)


def decode_record(kind: int, name: str, value: Buffer | None) -> ConsumerRecord:
    """The record of a key of type `kind`; `name` is the key's member id or regular expression."""
    match kind:
        case 3:
            return GroupEpochRecord(read_value(value, _group_epoch))
        case 4:
            return SubscribedTopicsRecord()
        case 5:
            return MemberRecord(name, read_value(value, _member))
        case 6:
            return TargetEpochRecord(*(read_value(value, read_target_epoch) or (None, 0)))
        case 7:
            return TargetRecord(name, read_value(value, read_partitions))
        case 8:
            return CurrentRecord(name, read_value(value, _current))
        case 16:
            return RegexRecord(name, read_value(value, _regex))
        case _:
            raise RecordFormatError(f"key type {kind}")


def _key_of(record: ConsumerRecord) -> tuple[int, str | None]:
    match record:
        case GroupEpochRecord():
            return GROUP_EPOCH, None
        case SubscribedTopicsRecord():
            return SUBSCRIBED_TOPICS, None
        case MemberRecord(name):
            return MEMBER, name
        case TargetEpochRecord():
            return TARGET_EPOCH, None
        case TargetRecord(name):
            return TARGET, name
        case CurrentRecord(name):
            return CURRENT, name
        case RegexRecord(name):
            return REGEX, name


def _encode_value(record: ConsumerRecord) -> bytes | None:
    if record.value is None:
        return None
    out = FlexibleWriter(0)
    match record:
        case GroupEpochRecord(GroupEpoch() as value):
            out.i32(value.epoch)
            out.tags([(0, value.metadata_hash.to_bytes(8, signed=True))] if value.metadata_hash else [])
        case MemberRecord(_, MemberMetadata() as value):
            _write_member(out, value)
        case TargetEpochRecord(int() as value, computed_ms):
            write_target_epoch(out, value, computed_ms)
        case TargetRecord(_, value):
            write_partitions(out, value or {})
            out.tags()
        case CurrentRecord(_, CurrentAssignment() as value):
            out.i32(value.epoch)
            out.i32(value.previous_epoch)
            out.i8(value.state)
            write_partitions(out, value.assigned, value.epochs)
            write_partitions(out, value.revoking, value.epochs)
            out.tags()
        case RegexRecord(_, ResolvedRegex() as value):
            out.strings(value.topics)
            out.i64(value.version)
            out.i64(value.timestamp_ms)
            out.tags()
        case _:
            raise AssertionError(f"{record} has no value")
    return out.bytes()


def _write_member(out: FlexibleWriter, value: MemberMetadata) -> None:
    out.string(value.instance_id)
    out.string(value.rack_id)
    out.string(value.client_id)
    out.string(value.client_host)
    out.strings(value.topics)
    out.string(value.regex)
    out.i32(value.rebalance_timeout_ms)
    out.string(value.assignor)
    classic = FlexibleWriter()
    # A nullable structure in a tagged field begins with 1; Kafka writes null as 0.
    if value.classic is None:
        classic.varint(0)
        out.tags([(0, classic.bytes())])
        return
    classic.varint(1)
    classic.i32(value.classic.session_timeout_ms)
    classic.size(len(value.classic.protocols))
    for protocol in value.classic.protocols:
        classic.string(protocol.name)
        classic.octets(protocol.metadata)
        classic.tags()
    classic.tags()
    out.tags([(0, classic.bytes())])


def _group_epoch(reader: FlexibleReader) -> GroupEpoch:
    epoch, tags = reader.i32(), reader.tags()
    return GroupEpoch(epoch, int.from_bytes(tags.get(0, b"\0"), signed=True))


def _member(reader: FlexibleReader) -> MemberMetadata:
    instance_id, rack_id = reader.string(), reader.string()
    client_id, client_host = reader.string() or "", reader.string() or ""
    topics = reader.strings()
    regex = reader.string()
    timeout_ms, assignor = reader.i32(), reader.string()
    classic = reader.tags().get(0)
    return MemberMetadata(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=tuple(topics),
        regex=regex,
        rebalance_timeout_ms=timeout_ms,
        assignor=assignor,
        classic=None if classic is None else _classic(FlexibleReader(classic)),
    )


def _classic(reader: FlexibleReader) -> ClassicMetadata | None:
    if reader.varint() == 0:
        return None
    session_ms = reader.i32()
    protocols: list[ClassicProtocol] = []
    for _ in range(reader.size()):
        protocols.append(ClassicProtocol(reader.string() or "", reader.octets()))
        reader.tags()
    return ClassicMetadata(session_timeout_ms=session_ms, protocols=tuple(protocols))


def _current(reader: FlexibleReader) -> CurrentAssignment:
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    known = state in tuple(MemberState)
    epochs: dict[tuple[UUID, int], int] = {}
    assigned, revoking = (read_partitions(reader, epochs, max(epoch, 0)) for _ in range(2))
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=previous,
        state=MemberState(state) if known else MemberState.UNKNOWN,
        assigned=assigned,
        revoking=revoking,
        epochs=dict(sorted(epochs.items())),
    )


def _regex(reader: FlexibleReader) -> ResolvedRegex:
    return ResolvedRegex(tuple(reader.strings()), reader.i64(), reader.i64())


def encode_all(group_id: str, records: Iterable[ConsumerRecord]) -> Sequence[KeyValue]:
    """Keys and values of records."""
    return [encode_record(group_id, record) for record in records]
