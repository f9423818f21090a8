"""Record batches v2 as brokers handle them: judged by header and CRC, patched, never decoded.

Owns: what a produce request may contain (`validate`), what a broker rewrites before it appends
(`placed_header`, `assign_offset`, `stamp_append_time`), and, by re-export, all about batches: headers and walking
them (`batch_header`), records (`records`).

Invariant: cost is per batch, never per record. Fails with KafkaError only:

    magic other than 2                                   unsupported_for_message_format
    cut off, impossible length, CRC wrong                corrupt_message
    larger than max.message.bytes                        message_too_large
    counts disagree, client's offset or control batch,
    producer id without sequence, no batch at all        invalid_record
    a client's batch marked LogAppendTime                invalid_timestamp

Source: Kafka's `UnifiedLog.analyzeAndValidateRecords`, `LogValidator.validateBatch`.
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
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    SPAN,
    BatchHeader,
    PlacedBatch,
    header_at,
    headers,
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
    "stamp_append_time",
    "validate",
    "write_varint",
]

_PLACE = struct.Struct(">qii")
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_CODEC_MAX = int(Codec.ZSTD)
_unpack = HEADER.unpack_from
_make = BatchHeader._make
_put_offset = _OFFSET.pack_into
_put_epoch = _EPOCH.pack_into


def validate(records: Buffer, *, max_bytes: int, from_client: bool = True) -> list[PlacedBatch]:
    """Judge everything that a produce request (or a coordinator) wants appended to one partition.

    Returns the batches in order; at least one. KafkaError as the module's head says.
    `from_client=False` allows control batches and any base offset: coordinators are ourselves.
    """
    view = memoryview(records)
    end = len(view)
    found: list[PlacedBatch] = []
    position = 0
    while position < end:
        if end - position < HEADER_SIZE:
            raise _refused(view, position)
        header = _make(_unpack(view, position))
        _, length, _, magic, crc, attributes, last_delta, _, _, _, _, _, count = header
        if magic != 2:
            raise _refused(view, position)
        size = length + LOG_OVERHEAD
        if size < HEADER_SIZE or size > end - position:
            raise _corrupt(f"batch of {size} bytes at byte {position} of {end}")
        if size > max_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"batch of {size} bytes is larger than max.message.bytes, {max_bytes}",
            )
        if crc32c(view[position + ATTRIBUTES_AT : position + size]) != crc:
            raise _corrupt(f"CRC of the batch at byte {position} is wrong")
        if not 0 < count == last_delta + 1:
            raise _invalid(f"batch counts {count} records, last offset delta {last_delta}")
        if attributes & CODEC_MASK > _CODEC_MAX:
            raise _invalid(f"unknown compression codec {header.codec}")
        if from_client:
            _check_client_fields(header)
        found.append(PlacedBatch(position, size, header))
        position += size
    if not found:
        raise _invalid("no record batch in the request")
    return found


def crc_matches(records: Buffer, placed: PlacedBatch) -> bool:
    """True when the bytes of that batch are the ones its CRC was taken of."""
    position, size, header = placed
    return crc32c(memoryview(records)[position + ATTRIBUTES_AT : position + size]) == header.crc


def placed_header(batch: Buffer, header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 61 bytes of `batch` as the log has them; the CRC holds, and `batch` stays as it is."""
    return _PLACE.pack(base_offset, header.length, leader_epoch) + batch[MAGIC_AT:HEADER_SIZE]


def assign_offset(batch: bytearray, position: int, base_offset: int, leader_epoch: int) -> None:
    """Patch where the log puts the batch at `position` and under which leader; the CRC holds."""
    _put_offset(batch, position, base_offset)
    _put_epoch(batch, position + LEADER_EPOCH_AT, leader_epoch)


def stamp_append_time(batch: bytearray, placed: PlacedBatch, append_time_ms: int) -> None:
    """Make the batch one of LogAppendTime: attribute bit, max timestamp, and a new CRC."""
    position, size, header = placed
    _ATTRIBUTES.pack_into(batch, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(batch, position + MAX_TIMESTAMP_AT, append_time_ms)
    crc = crc32c(memoryview(batch)[position + ATTRIBUTES_AT : position + size])
    _CRC.pack_into(batch, position + CRC_AT, crc)


def _check_client_fields(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise _invalid(f"base offset in a produce request is {header.base_offset}, expected 0")
    if header.attributes & CONTROL:
        raise _invalid("clients are not allowed to write control batches")
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.invalid_timestamp,
            "a producer does not set the timestamp type to LogAppendTime",
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}"
        )


def _refused(view: memoryview, position: int) -> KafkaError:
    """Too short for a v2 header, or of another magic: an old format when the magic byte says so."""
    left = len(view) - position
    if left > MAGIC_AT and view[position + MAGIC_AT] != 2:
        magic = view[position + MAGIC_AT]
        return KafkaError(
            ErrorCode.unsupported_for_message_format,
            f"batch at byte {position} has magic {magic}, expected 2",
        )
    return _corrupt(f"batch at byte {position} is cut off after {left} bytes")


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_record, message)
