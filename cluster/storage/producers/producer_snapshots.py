"""Producer snapshots: `<offset>.snapshot`, the producer states of a log before that offset.

Format, version 1, big-endian: version i2 · crc u4 (CRC-32C of all that follows it) · count i4 · for each
producer: id i8, epoch i2, last sequence i4, last offset i8, offset delta of the last batch i4,
timestamp i8, coordinator epoch i4, first offset of the open transaction i8 (-1: none).

Only the last batch of each producer is stored, as in Kafka: a retry of an older batch is recognised only when that
batch lies after the snapshot. Every start of a broker ends at a snapshot of the log end, so that a producer with
several batches in doubt may get OUT_OF_ORDER_SEQUENCE_NUMBER from a broker that has started again.
A snapshot that cannot be read is a CorruptLogError; `ProducerStates`
then uses an older snapshot. Source: Kafka's `ProducerStateManager`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from ...errors import CorruptLogError
from .producer_entry import NO_TRANSACTION, BatchMetadata, ProducerEntry, shift_sequence

VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_END = 6
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """A snapshot file of these producers."""
    body = bytearray()
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence if last else -1,
            last.last_offset if last else -1,
            last.last_offset - last.first_offset if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        count += 1
    data = bytearray(_HEAD.pack(VERSION, 0, count)) + body
    _CRC.pack_into(data, 2, crc32c(memoryview(data)[_CRC_END:]))
    return bytes(data)


def decode_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """The producers of a snapshot; CorruptLogError names `path` when it is none."""
    if len(data) < _HEAD.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes are no producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptLogError(f"{path}: version {version}, expected {VERSION}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CorruptLogError(f"{path}: CRC or size is wrong")
    return [_entry(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :])]


def _entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    batches: tuple[BatchMetadata, ...] = ()
    if offset >= 0:
        first = shift_sequence(sequence, -delta)
        batches = (BatchMetadata(first, sequence, offset - delta, offset, timestamp),)
    return ProducerEntry(producer_id, epoch, batches, timestamp, coordinator_epoch, max(txn, NO_TRANSACTION))
