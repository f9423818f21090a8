"""Keys and values of `__share_group_state` in Kafka's own binary format.

Owns: encoding and decoding. A key begins with an int16 type, its group has an int16 length; values have version 0 of
the flexible format.

| type | record        | value |
| ---- | ------------- | --- |
| 0    | ShareSnapshot | snapshot epoch, state epoch, leader epoch, start offset, created, written, batches;   |
|      |               | tag 0: completed |
| 1    | ShareUpdate   | snapshot epoch, leader epoch, start offset (-1: unchanged), batches; tag 0: completed |

`completed` is the delivery complete count (KIP-1226), -1 where it is not known. A tombstone has the key of a snapshot.

May fail: RecordFormatError for bytes that are no such record; records of other types decode to None.
Source: ShareSnapshotKey/Value.json and ShareUpdateKey/Value.json of Apache Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..coordinators import KeyValue, RecordFormatError
from ..coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ..coordinators.record_fields import FieldReader, FieldWriter
from ..host.seam import Buffer
from ..ids import LeaderEpoch, Offset
from ..wire.topic_ids import UUID
from .values import DeliveryState, SharePartition, StateBatch

SNAPSHOT, UPDATE = 0, 1
VERSION = 0
COMPLETED_TAG = 0
_COMPLETED = struct.Struct(">i")
_COUNT = struct.Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a ShareUpdate record adds to the state of a share-partition."""

    snapshot_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """-1: unchanged."""
    completed: int
    batches: Sequence[StateBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole state of a share-partition, as a ShareSnapshot record has it."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    completed: int
    created_ms: int
    written_ms: int
    batches: tuple[StateBatch, ...]


StoredRecord = tuple[SharePartition, Snapshot | Update | None]
"""A share-partition, and what a record says of it; None: its state is deleted."""


def encode(share: SharePartition, value: Snapshot | Update | None) -> KeyValue:
    """Key and value of a record; None: the tombstone."""
    key = FieldWriter(UPDATE if isinstance(value, Update) else SNAPSHOT)
    key.classic_string(share.group_id)
    key.raw(share.topic_id.bytes)
    key.i32(share.partition)
    return key.bytes(), None if value is None else _encode_value(value)


def _encode_value(value: Snapshot | Update) -> bytes:
    out = FlexibleWriter(VERSION)
    out.i32(value.snapshot_epoch)
    if isinstance(value, Snapshot):
        out.i32(value.state_epoch)
    out.i32(value.leader_epoch)
    out.i64(value.start_offset)
    if isinstance(value, Snapshot):
        out.i64(value.created_ms)
        out.i64(value.written_ms)
    out.size(len(value.batches))
    for batch in value.batches:
        assert batch.first_offset <= batch.last_offset, f"{batch} ends before it begins"
        out.i64(batch.first_offset)
        out.i64(batch.last_offset)
        out.i8(batch.state)
        out.raw(_COUNT.pack(batch.delivery_count))
        out.tags()
    out.tags([(COMPLETED_TAG, _COMPLETED.pack(value.completed))] if value.completed != -1 else [])
    return out.bytes()


def decode(key: Buffer, value: Buffer | None) -> StoredRecord | None:
    """What a record says; None for a record of another type. RecordFormatError."""
    reader = FieldReader(key)
    kind = reader.i16()
    if kind not in (SNAPSHOT, UPDATE):
        return None
    group_id = reader.text(reader.i16()) or ""
    share = SharePartition(group_id, UUID(bytes=reader.raw(16)), reader.i32())
    if value is None:
        return share, None
    return share, _decode_value(kind, value)


def _decode_value(kind: int, value: Buffer) -> Snapshot | Update:
    reader = FlexibleReader(value)
    version = reader.i16()
    if version != VERSION:
        raise RecordFormatError(f"the value of a share state record has version {version}, known is {VERSION}")
    snapshot_epoch = reader.i32()
    state_epoch = reader.i32() if kind == SNAPSHOT else 0
    leader_epoch, start_offset = LeaderEpoch(reader.i32()), Offset(reader.i64())
    created_ms, written_ms = (reader.i64(), reader.i64()) if kind == SNAPSHOT else (0, 0)
    batches = tuple(_decode_batch(reader) for _ in range(reader.size()))
    tag = reader.tags().get(COMPLETED_TAG)
    completed = -1 if tag is None else FieldReader(tag).i32()
    if kind == UPDATE:
        return Update(
            snapshot_epoch=snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            completed=completed,
            batches=batches,
        )
    return Snapshot(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        completed=completed,
        created_ms=created_ms,
        written_ms=written_ms,
        batches=batches,
    )


def _decode_batch(reader: FlexibleReader) -> StateBatch:
    first, last, state, count = reader.i64(), reader.i64(), reader.i8(), reader.i16()
    reader.tags()
    try:
        return StateBatch(Offset(first), Offset(last), DeliveryState(state), count)
    except ValueError:
        raise RecordFormatError(f"the delivery state {state} is not known") from None
