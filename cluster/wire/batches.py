"""Record batches v2 as brokers handle them: validated by header and CRC and patched, but never decoded.

Owns: the rules for the batch in a produce request (`validate`), and the fields that a broker rewrites before it
appends a batch (`placed_header`, `assign_offset`, `stamp`). Re-exports the other modules about batches: headers and
their iteration (`batch_header`), records (`records`).

Invariant: the cost is per batch, never per record. Fails with KafkaError only:

    no complete batch, or a second complete batch after it;
    magic 0 or 1; record counts that disagree; from a client:
    a base offset other than 0, a control batch, or a
    producer id without a sequence                           invalid_record
    impossible length, magic above 2, wrong CRC              corrupt_message
    larger than max.message.bytes                            message_too_large

A produce request has exactly one batch for each partition (from version 3 on). An incomplete second batch after it
is ignored, as in Kafka.

Source: Kafka's `ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator.validateBatch`;
tests/conformance asks a live Kafka.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ..errors import ErrorCode, KafkaError
from ..host.seam import Buffer
from .batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    OFFSET_AND_LENGTH,
    SPAN,
    BatchHeader,
    PlacedBatch,
    header_at,
    headers,
    new_row,
)
from .compression import Codec
from .records import (
    Header,
    NewRecord,
    Record,
    build_batch,
    build_end_txn_marker,
    decode_records,
    read_varint,
    write_varint,
)

__all__ = [
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "SPAN",
    "BatchHeader",
    "Codec",
    "Header",
    "NewRecord",
    "PlacedBatch",
    "Record",
    "assign_offset",
    "build_batch",
    "build_end_txn_marker",
    "crc_matches",
    "decode_records",
    "header_at",
    "headers",
    "placed_header",
    "read_varint",
    "stamp",
    "validate",
    "write_varint",
]

_place = struct.Struct(">qii").pack
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_CODEC_MAX = int(Codec.ZSTD)
_unpack = HEADER.unpack_from

LEGACY_SIZE_MIN = LOG_OVERHEAD + 14
"""Size of the smallest message of any format, in bytes. Kafka checks it before it reads the magic."""


KNOWN_ATTRIBUTES = 0x7F
"""Codec, timestamp type, transactional, control batch, delete horizon."""


def validate(records: Buffer, *, max_bytes: int, from_client: bool = True) -> BatchHeader:
    """Validates the batch that a produce request (or a coordinator) wants to append, and returns its header.

    The batch is the first `size` bytes of `records`; the bytes after it are not a complete batch. Raises KafkaError
    as listed at the top of this module. `from_client=False` allows control batches and any base offset: these
    batches come from this broker's own coordinators.
    """
    if len(records) < HEADER_SIZE:
        check_extent(records)
    fields = _unpack(records)
    base, length, _, magic, crc, attributes, last_delta, _, _, producer, _, sequence, count = fields
    size = length + LOG_OVERHEAD
    if magic != 2 or size != len(records):
        check_extent(records)
    if base and from_client:
        raise _invalid(f"the base offset of a batch in a produce request is {base}, expected 0")
    if size > max_bytes:
        raise KafkaError(
            ErrorCode.message_too_large, f"the batch of {size} bytes is larger than max.message.bytes, {max_bytes}"
        )
    if crc32c(memoryview(records)[ATTRIBUTES_AT:size]) != crc:
        raise _corrupt("the batch does not match its CRC")
    if not 0 < count == last_delta + 1:
        raise _invalid(f"the batch claims {count} records, but its last offset delta is {last_delta}")
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise _invalid(f"unknown compression codec {attributes & CODEC_MASK}")
    if from_client:
        if attributes & CONTROL:
            raise _invalid("clients are not allowed to write control batches")
        if producer >= 0 and sequence < 0:
            raise _invalid(f"producer id {producer} needs a sequence, but has {sequence}")
    return new_row(BatchHeader, fields)


def check_extent(records: Buffer) -> None:
    """Raises KafkaError unless `records` begin with a complete batch of magic 2 and have no second complete batch."""
    view = memoryview(records)
    size = _whole(view)
    if not size:
        raise _invalid(f"the {len(view)} bytes for the partition hold no complete record batch")
    if view[MAGIC_AT] != 2:
        raise _invalid(f"magic {view[MAGIC_AT]}: a produce request may only hold batches of magic 2")
    if size < HEADER_SIZE:
        raise _corrupt(f"a batch of {size} bytes is smaller than the header of a batch, {HEADER_SIZE}")
    if _whole(view[size:]):
        raise _invalid("a produce request may only hold one record batch for a partition")


def _whole(view: memoryview) -> int:
    """Returns the size of the batch (of any format) at the front of `view`; 0 when the batch is incomplete."""
    if len(view) < LOG_OVERHEAD:
        return 0
    size = int(OFFSET_AND_LENGTH.unpack_from(view)[1]) + LOG_OVERHEAD
    if size < LEGACY_SIZE_MIN:
        raise _corrupt(f"a batch of {size} bytes is smaller than any batch, {LEGACY_SIZE_MIN} bytes")
    if len(view) <= MAGIC_AT:
        return 0
    if view[MAGIC_AT] > 2:
        raise _corrupt(f"magic {view[MAGIC_AT]}, expected 2")
    return size if size <= len(view) else 0


def crc_matches(records: Buffer, placed: PlacedBatch) -> bool:
    """True when the bytes of the batch match its CRC."""
    position, size, header = placed
    return crc32c(memoryview(records)[position + ATTRIBUTES_AT : position + size]) == header.crc


def placed_header(batch: memoryview, length: int, base_offset: int, leader_epoch: int) -> bytes:
    """Returns the header of `batch` as the log stores it: with this base offset and leader epoch.

    The CRC stays valid, because it does not cover these fields. `batch` does not change.
    """
    return _place(base_offset, length, leader_epoch) + batch[MAGIC_AT:HEADER_SIZE]


def assign_offset(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Writes the base offset and the leader epoch into the batch; the CRC does not cover them and stays valid."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def stamp(batch: bytearray, attributes: int, max_timestamp: int) -> BatchHeader:
    """Writes new attributes (the timestamp type), a new max timestamp and the new CRC into the batch.

    As in Kafka, bits of the attributes without a meaning are then not kept.
    """
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes & KNOWN_ATTRIBUTES)
    _OFFSET.pack_into(batch, MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return header_at(batch)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
