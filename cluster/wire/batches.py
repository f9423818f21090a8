"""Record batches v2 as brokers handle them: judged by header and CRC, patched, never decoded.

Owns: what a produce request may contain (`validate`), what a broker rewrites before it appends
(`placed_header`, `assign_offset`, `stamp`), and, by re-export, all about batches: headers and walking them
(`batch_header`), records (`records`).

Invariant: cost is per batch, never per record. Fails with KafkaError only:

    no whole batch, or one behind it; magic 0 or 1;
    counts disagree; a client's offset, control batch,
    or producer id without a sequence                    invalid_record
    impossible length, another magic, CRC wrong          corrupt_message
    larger than max.message.bytes                        message_too_large

A produce request has exactly one batch for a partition (from version 3 on); the beginning of another one behind it
is passed over, as Kafka does.

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
"""Bytes of the smallest message of any format: what Kafka looks at before it looks at the magic."""


def validate(records: Buffer, *, max_bytes: int, from_client: bool = True) -> BatchHeader:
    """Judge what a produce request (or a coordinator) wants appended to one partition: the header of its one batch.

    That fills `records` up to the header's `size`; what lies behind is no whole batch. KafkaError as the module's
    head says. `from_client=False` allows control batches and any base offset: coordinators are ourselves.
    """
    if len(records) < HEADER_SIZE:
        _check_extent(records)
    fields = _unpack(records)
    base, length, _, magic, crc, attributes, last_delta, _, _, producer, epoch, sequence, count = (
        fields
    )
    size = length + LOG_OVERHEAD
    if magic != 2 or size != len(records):
        _check_extent(records)
    if base and from_client:
        raise _invalid(f"base offset in a produce request is {base}, expected 0")
    if size > max_bytes:
        raise KafkaError(
            ErrorCode.message_too_large,
            f"batch of {size} bytes is larger than max.message.bytes, {max_bytes}",
        )
    if crc32c(memoryview(records)[ATTRIBUTES_AT:size]) != crc:
        raise _corrupt("CRC of the batch is wrong")
    if not 0 < count == last_delta + 1:
        raise _invalid(f"batch counts {count} records, last offset delta {last_delta}")
    if attributes & CODEC_MASK > _CODEC_MAX:
        raise _invalid(f"unknown compression codec {attributes & CODEC_MASK}")
    if from_client:
        if attributes & CONTROL:
            raise _invalid("clients are not allowed to write control batches")
        if producer >= 0 and (epoch < 0 or sequence < 0):
            raise _invalid(f"producer {producer} sent epoch {epoch}, sequence {sequence}")
    return new_row(BatchHeader, fields)


def _check_extent(records: Buffer) -> None:
    """KafkaError unless `records` begin with a whole batch of magic 2, and hold no second one."""
    view = memoryview(records)
    size = _whole(view)
    if not size:
        raise _invalid(f"no whole record batch in the {len(view)} bytes for the partition")
    if view[MAGIC_AT] != 2:
        raise _invalid(f"magic {view[MAGIC_AT]}: a produce request only holds batches of magic 2")
    if size < HEADER_SIZE:
        raise _corrupt(f"a batch of {size} bytes is smaller than its header")
    if _whole(view[size:]):
        raise _invalid("a produce request only holds one record batch for a partition")


def _whole(view: memoryview) -> int:
    """Bytes of the batch, of any format, that `view` begins with; 0 when it is not all there."""
    if len(view) < LOG_OVERHEAD:
        return 0
    size = int(OFFSET_AND_LENGTH.unpack_from(view)[1]) + LOG_OVERHEAD
    if size < LEGACY_SIZE_MIN:
        raise _corrupt(f"a batch of {size} bytes is smaller than any")
    if len(view) <= MAGIC_AT:
        return 0
    if view[MAGIC_AT] > 2:
        raise _corrupt(f"magic {view[MAGIC_AT]}, expected 2")
    return size if size <= len(view) else 0


def crc_matches(records: Buffer, placed: PlacedBatch) -> bool:
    """True when the bytes of that batch are the ones its CRC was taken of."""
    position, size, header = placed
    return crc32c(memoryview(records)[position + ATTRIBUTES_AT : position + size]) == header.crc


def placed_header(batch: memoryview, length: int, base_offset: int, leader_epoch: int) -> bytes:
    """The first 61 bytes of `batch` as the log has them; the CRC holds, and `batch` stays as it is."""
    return _place(base_offset, length, leader_epoch) + batch[MAGIC_AT:HEADER_SIZE]


def assign_offset(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Patch where the log puts the batch and under which leader; the CRC holds."""
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def stamp(batch: bytearray, attributes: int, max_timestamp: int) -> BatchHeader:
    """Give the batch other attributes (whose time it has) and another largest timestamp, and a new CRC."""
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes)
    _OFFSET.pack_into(batch, MAX_TIMESTAMP_AT, max_timestamp)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return header_at(batch)


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
