"""Decodes the records of a batch and builds batches from records. The produce and fetch paths never use it.

Owns: varints, the record layout of format v2, and the keys of transaction markers. The layout of a record:

    length varint · attributes i1 · timestamp delta varlong · offset delta varint
    key (varint length, -1: null) · value (the same) · headers count varint · headers (key, value)

Used by the coordinators (for their own topics), ListOffsets by timestamp, tools and tests.
Fails with KafkaError(corrupt_message) on bytes that are not valid records. Source: Kafka's `DefaultRecord`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from ..errors import ErrorCode, KafkaError
from ..host.seam import Buffer
from .batch_header import (
    ATTRIBUTES_AT,
    CONTROL,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    header_at,
)
from .compression import compress, decompress

Header = tuple[str, bytes | None]
NewRecord = tuple[bytes | None, bytes | None, Sequence[Header]]
"""Key, value, headers."""

CONTROL_KEY = struct.Struct(">hh")
"""Key of a control record: version, type (0 abort, 1 commit)."""

END_TXN_VALUE = struct.Struct(">hi")
"""Value of a transaction marker: version, coordinator epoch."""

RECORD_BYTES_MOST = 2**31 - 1
"""The length of a record has 32 bits."""

_CRC = struct.Struct(">I")
_VARINT_BITS_MAX = 63


class Record(NamedTuple):
    """A decoded record; `timestamp` is in milliseconds since the Unix epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def write_varint(out: bytearray, number: int) -> None:
    """Append `number` zigzag-encoded in groups of 7 bits."""
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the zigzag-encoded number at `position` and the position after it; IndexError past the end."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7
        if shift > _VARINT_BITS_MAX:
            raise IndexError(f"the varint before byte {position} is longer than 10 bytes")


def build_batch(
    records: Sequence[NewRecord],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: int = 0,
    is_transactional: bool = False,
    is_control: bool = False,
    timestamps_ms: Sequence[int] | None = None,
) -> bytes:
    """Builds a batch of at least one record, with a valid CRC.

    `timestamps_ms` gives each record its own timestamp; without it every record has `timestamp_ms`.
    """
    if not records:
        raise ValueError("cannot build a batch without records: a batch has at least one record")
    times = [timestamp_ms] * len(records) if timestamps_ms is None else list(timestamps_ms)
    if len(times) != len(records):
        raise ValueError(f"{len(records)} records need as many timestamps, not {len(times)}")
    body = bytearray()
    for delta, (record, time) in enumerate(zip(records, times, strict=True)):
        encoded = _encode_record(record, delta, time - times[0])
        write_varint(body, len(encoded))
        body += encoded
    payload = compress(codec, body)
    attributes = codec | (TRANSACTIONAL if is_transactional else 0)
    attributes |= CONTROL if is_control else 0
    count = len(records)
    batch = bytearray(HEADER_SIZE)
    fields = (base_offset, LENGTH_MIN + len(payload), leader_epoch, 2, 0, attributes, count - 1)
    HEADER.pack_into(batch, 0, *fields, times[0], max(times), producer_id, producer_epoch, base_sequence, count)
    batch += payload
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    assert header_at(batch).size == len(batch), "the header's length must cover the batch exactly"
    return bytes(batch)


def build_end_txn_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytes:
    """Builds the control batch that ends a transaction in a partition."""
    key = CONTROL_KEY.pack(0, 1 if commit else 0)
    value = END_TXN_VALUE.pack(0, coordinator_epoch)
    return build_batch(
        [(key, value, ())],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_records(batch: Buffer) -> list[Record]:
    """Returns every record of the batch at the front of `batch`, control records included.

    KafkaError(corrupt_message) when the bytes are not valid records. The CRC is not checked.
    """
    return list(each_record(batch))


def each_record(batch: Buffer, bytes_max: int = RECORD_BYTES_MOST) -> Iterator[Record]:
    """As `decode_records`, one after the other; KafkaError(invalid_record) at a compressed record above `bytes_max`."""
    try:
        header = header_at(batch)
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size])
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        position = 0
        for _ in range(header.record_count):
            size, position = read_varint(data, position)
            if size > bytes_max and header.codec:
                raise too_large(size, bytes_max)
            end = position + size
            yield _decode_record(data, position, end, header.base_offset, header.base_timestamp, append_time)
            position = end
    except (IndexError, struct.error) as error:
        raise KafkaError(ErrorCode.corrupt_message, f"the batch does not decode: {error}") from None


def too_large(size: int, bytes_max: int) -> KafkaError:
    """The refusal of a record above `max.decompressed.message.bytes`."""
    return KafkaError(
        ErrorCode.invalid_record,
        f"Invalid record size: {size} exceeds the configured maximum record size of {bytes_max}.",
    )


def _encode_record(record: NewRecord, offset_delta: int, timestamp_delta: int) -> bytearray:
    key, value, headers = record
    out = bytearray(1)
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, key)
    _write_bytes(out, value)
    write_varint(out, len(headers))
    for name, content in headers:
        _write_bytes(out, name.encode())
        _write_bytes(out, content)
    return out


def _decode_record(
    data: bytes, position: int, end: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Record:
    if not position < end <= len(data):
        raise IndexError(f"a record claims bytes {position} to {end}, but the batch holds {len(data)} bytes of records")
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = read_varint(data, position)
    if count < 0:
        raise IndexError(f"the record has {count} headers")
    headers: list[Header] = []
    for _ in range(count):
        name, position = _read_bytes(data, position, end)
        content, position = _read_bytes(data, position, end)
        if name is None:
            raise IndexError("the key of a record header is null")
        # Producers may write any bytes as a header key. Kafka also decodes them with replacement, and the
        # decoded text is never written to a log.
        headers.append((name.decode(errors="replace"), content))
    if position != end:
        raise IndexError(f"the record ends at byte {position}, but its length field says {end}")
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _write_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(content))
        out += content


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(data, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise IndexError(f"a field of {size} bytes at byte {position} exceeds the end of its record at {end}")
    return data[position : position + size], position + size
