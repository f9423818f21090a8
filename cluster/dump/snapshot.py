"""`.snapshot` files: what a log knew of its producers before an offset.

    version i2 (1) · crc u4 (of all that follows) · count i4 · for each producer: id i8 · epoch i2 · last sequence i4 ·
    last offset i8 · offset delta i4 · timestamp i8 · coordinator epoch i4 · first offset of its transaction i8

A file that is none is said on the error stream, and the tool goes on. Source: Kafka's
`ProducerStateManager.readSnapshot`, `DumpLogSegments.dumpProducerIdSnapshot`.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ..wire.batch_header import SEQUENCE_MODULUS
from .java_text import optional
from .offset_index import read_whole
from .source import DumpError, Source, Streams

HEAD = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
VERSION = 1
SCHEMA = "Snapshot failed schema validation: "
_VERSION_SIZE = 2
_CRC_END = 6


def dump_snapshot(source: Source, streams: Streams, path: str) -> None:
    """Print it, or what is wrong with it on the error stream."""
    data = read_whole(source, path)
    wrong = _wrong(data, path)
    if wrong:
        streams.err(f"{wrong}\n")
        return
    _, _, count = HEAD.unpack_from(data)
    entries = memoryview(data)[HEAD.size : HEAD.size + count * ENTRY.size]
    streams.out("".join(_line(fields) for fields in ENTRY.iter_unpack(entries)))


def _wrong(data: bytes, path: str) -> str | None:
    if len(data) < _VERSION_SIZE:
        raise DumpError(f"{path}: {len(data)} bytes hold no version")
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
        return (
            f"{SCHEMA}Tried to allocate a collection of size {count}, "
            f"but there are only {left} bytes remaining."
        )
    if count * ENTRY.size > left:
        return f"{SCHEMA}null"
    computed = crc32c(memoryview(data)[_CRC_END:])
    if computed != stored:
        return (
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. "
            f"Computed crc: {computed}"
        )
    return None


def _line(fields: tuple[int, ...]) -> str:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn = fields
    line = (
        f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        f"currentTxnFirstOffset: {optional(txn)} lastTimestamp: {timestamp} "
    )
    if offset >= 0:
        line += (
            f"firstSequence: {(sequence - delta) % SEQUENCE_MODULUS} lastSequence: {sequence} "
            f"lastOffset: {offset} offsetDelta: {delta} timestamp: {timestamp}"
        )
    return line + "\n"
