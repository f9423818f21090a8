"""Dumps `.snapshot` files: the producer state of a log before an offset.

    version i2 (1) · crc u4 (of all that follows) · count i4 · for each producer: id i8 · epoch i2 · last sequence i4 ·
    last offset i8 · offset delta i4 · timestamp i8 · coordinator epoch i4 · first offset of its transaction i8

For a file that is not a valid snapshot the tool prints a message on the error stream and continues. Source: Kafka's
`ProducerStateManager.readSnapshot`, `DumpLogSegments.dumpProducerIdSnapshot`.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ..wire.batch_header import SEQUENCE_MODULUS
from .java_text import optional_long
from .offset_index import read_whole
from .source import DumpError, LogFiles, Streams

HEAD = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
VERSION = 1
SCHEMA = "Snapshot failed schema validation: "
_VERSION_SIZE = 2
_CRC_END = 6


def dump_snapshot(files: LogFiles, streams: Streams, path: str) -> None:
    """Prints the file, or the reason why it is not a valid snapshot on the error stream."""
    data = read_whole(files, path)
    reason = _invalid_because(data, path)
    if reason:
        streams.err(f"{reason}\n")
        return
    _, _, count = HEAD.unpack_from(data)
    entries = memoryview(data)[HEAD.size : HEAD.size + count * ENTRY.size]
    streams.out("".join(_line(fields) for fields in ENTRY.iter_unpack(entries)))


def _invalid_because(data: bytes, path: str) -> str | None:
    if len(data) < _VERSION_SIZE:
        raise DumpError(f"{path}: {len(data)} bytes are too few for a version ({_VERSION_SIZE} bytes)")
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if version != VERSION:
        return f"{SCHEMA}Snapshot contained an unknown file version {version}"
    if len(data) < HEAD.size:
        return f"{SCHEMA}null"
    _, stored, count = HEAD.unpack_from(data)
    left = len(data) - HEAD.size
    if count < 0:
        return f"{SCHEMA}non-nullable field producerEntries was serialized as null"
    if count > left:
        return f"{SCHEMA}Tried to allocate a collection of size {count}, but there are only {left} bytes remaining."
    if count * ENTRY.size > left:
        return f"{SCHEMA}null"
    computed = crc32c(memoryview(data)[_CRC_END:])
    if computed != stored:
        return f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
    return None


def _line(fields: tuple[int, ...]) -> str:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    line = (
        f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        f"currentTxnFirstOffset: {optional_long(txn)} lastTimestamp: {timestamp}"
    )
    if offset >= 0:
        line += (
            f" firstSequence: {(sequence - delta) % SEQUENCE_MODULUS} lastSequence: {sequence} "
            f"lastOffset: {offset} offsetDelta: {delta} timestamp: {timestamp}"
        )
    return line + "\n"
