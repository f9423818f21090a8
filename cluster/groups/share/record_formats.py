"""Keys and values of a share group's records in Kafka's own binary format.

Owns: encoding and decoding. A key begins with an int16 type; its strings are int16-prefixed. Values have version 0 of
a flexible format.

| type | key after the type | value                                                                          |
| ---- | ------------------ | ------------------------------------------------------------------------------ |
| 10   | group, member      | rack, client, host, topics                                                     |
| 11   | group              | epoch, hash of the subscribed topics                                           |
| 12   | group              | assignment epoch                                                               |
| 13   | group, member      | target assignment                                                              |
| 14   | group, member      | epoch, previous epoch, state, assigned partitions                              |
| 15   | group              | topics with partitions that are initializing and initialized, topics deleting  |

The hash is Harrow's own, as that of consumer groups (`consumer/record_formats.py`).

May fail: RecordFormatError for bytes that are no such record.
Source: the ShareGroup…Key/Value.json files of Apache Kafka 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...coordinators import KeyValue, RecordFormatError
from ...coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ...host.seam import Buffer
from ...wire.topic_ids import UUID
from ..consumer.group_records import GroupEpoch
from ..group_fields import (
    encode_key,
    read_partitions,
    read_target_epoch,
    read_value,
    write_partitions,
    write_target_epoch,
)
from .members import NamedPartitions, ShareAssignment, ShareMetadata, StatePartitions, Topics
from .share_records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15


def encode_share_record(group_id: str, record: ShareRecord) -> KeyValue:
    """Key and value of a record."""
    kind, name = _key_of(record)
    return encode_key(kind, group_id, name), _encode_value(record)


def encode_share_records(group_id: str, records: Iterable[ShareRecord]) -> Sequence[KeyValue]:
    """Keys and values of records."""
    return [encode_share_record(group_id, record) for record in records]


def decode_share_record(kind: int, name: str, value: Buffer | None) -> ShareRecord:
    """The record of a key of type `kind`; `name` is the key's member id."""
    match kind:
        case 10:
            return ShareMemberRecord(name, read_value(value, _metadata))
        case 11:
            return ShareEpochRecord(read_value(value, _group_epoch))
        case 12:
            return ShareTargetEpochRecord(*(read_value(value, read_target_epoch) or (None, 0)))
        case 13:
            return ShareTargetRecord(name, read_value(value, read_partitions))
        case 14:
            return ShareCurrentRecord(name, read_value(value, _current))
        case 15:
            return StatePartitionsRecord(read_value(value, _state_partitions))
        case _:
            raise RecordFormatError(f"key type {kind}")


def _key_of(record: ShareRecord) -> tuple[int, str | None]:
    match record:
        case ShareMemberRecord(name):
            return MEMBER, name
        case ShareEpochRecord():
            return EPOCH, None
        case ShareTargetEpochRecord():
            return TARGET_EPOCH, None
        case ShareTargetRecord(name):
            return TARGET, name
        case ShareCurrentRecord(name):
            return CURRENT, name
        case StatePartitionsRecord():
            return STATE_PARTITIONS, None


def _encode_value(record: ShareRecord) -> bytes | None:
    if record.value is None:
        return None
    out = FlexibleWriter(0)
    match record:
        case ShareMemberRecord(_, ShareMetadata() as value):
            out.string(value.rack_id)
            out.string(value.client_id)
            out.string(value.client_host)
            out.strings(value.topics)
        case ShareEpochRecord(GroupEpoch() as value):
            out.i32(value.epoch)
            out.i64(value.metadata_hash)
        case ShareTargetEpochRecord(int() as value, computed_ms):
            write_target_epoch(out, value, computed_ms)
            return out.bytes()
        case ShareTargetRecord(_, value):
            write_partitions(out, value or {})
        case ShareCurrentRecord(_, ShareAssignment() as value):
            out.i32(value.epoch)
            out.i32(value.previous_epoch)
            out.i8(value.state)
            write_partitions(out, value.assigned)
        case StatePartitionsRecord(StatePartitions() as value):
            _write_topics(out, value.initializing)
            _write_topics(out, value.initialized)
            _write_names(out, value)
        case _:
            raise AssertionError(f"{record} has no value")
    out.tags()
    return out.bytes()


def _write_topics(out: FlexibleWriter, topics: Topics) -> None:
    out.size(len(topics))
    for topic_id, row in sorted(topics.items()):
        out.raw(topic_id.bytes)
        out.string(row.name)
        out.size(len(row.partitions))
        for number in sorted(row.partitions):
            out.i32(number)
        out.tags()


def _write_names(out: FlexibleWriter, value: StatePartitions) -> None:
    out.size(len(value.deleting))
    for topic_id, name in sorted(value.deleting.items()):
        out.raw(topic_id.bytes)
        out.string(name)
        out.tags()


def _metadata(reader: FlexibleReader) -> ShareMetadata:
    rack_id, client_id, client_host = reader.string(), reader.string() or "", reader.string() or ""
    return ShareMetadata(
        rack_id=rack_id, client_id=client_id, client_host=client_host, topics=tuple(sorted(reader.strings()))
    )


def _group_epoch(reader: FlexibleReader) -> GroupEpoch:
    return GroupEpoch(reader.i32(), reader.i64())


def _current(reader: FlexibleReader) -> ShareAssignment:
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    return ShareAssignment(epoch=epoch, previous_epoch=previous, state=state, assigned=read_partitions(reader))


def _state_partitions(reader: FlexibleReader) -> StatePartitions:
    return StatePartitions(initializing=_topics(reader), initialized=_topics(reader), deleting=_names(reader))


def _topics(reader: FlexibleReader) -> Topics:
    found: dict[UUID, NamedPartitions] = {}
    for _ in range(reader.size()):
        topic_id, name = UUID(bytes=reader.raw(16)), reader.string() or ""
        found[topic_id] = NamedPartitions(name, frozenset(reader.i32() for _ in range(reader.size())))
        reader.tags()
    return found


def _names(reader: FlexibleReader) -> dict[UUID, str]:
    found: dict[UUID, str] = {}
    for _ in range(reader.size()):
        topic_id = UUID(bytes=reader.raw(16))
        found[topic_id] = reader.string() or ""
        reader.tags()
    return found
