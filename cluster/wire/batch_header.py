"""The header of a record batch, format v2 (magic 2): the positions of its fields, and iteration over batches.

Owns: the 61 bytes before the records. All numbers are big-endian:

    0 base offset i8 · 8 length i4 (of what follows it) · 12 partition leader epoch i4
    16 magic i1 · 17 crc u4 · 21 attributes i2 · 23 last offset delta i4 · 27 base timestamp i8
    35 max timestamp i8 · 43 producer id i8 · 51 producer epoch i2 · 53 base sequence i4
    57 records count i4 · 61 records

Invariants: the CRC-32C covers bytes 21 to the end, so a broker may rewrite the base offset and the leader epoch
in place; `size` is `length + 12`. This module does not validate the values of the fields: `batches.validate` does.
Only `headers` raises, for a length that no batch can have.

Source: Kafka's `DefaultRecordBatch`, KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

from ..errors import CorruptLogError
from ..host.seam import Buffer

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
OFFSET_AND_LENGTH = struct.Struct(">qi")
LOG_OVERHEAD = OFFSET_AND_LENGTH.size
"""Number of bytes at the front of a batch that its `length` field does not count."""

SPAN = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta: the fields that a scan by offset needs."""

LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

assert HEADER_SIZE == 61, "the header of format v2 has 61 bytes"
assert struct.calcsize(">qii") == MAGIC_AT, "the magic follows the leader epoch"
assert struct.calcsize(">qiibI") == ATTRIBUTES_AT, "the attributes follow the CRC"
assert struct.calcsize(">qiibIhiq") == MAX_TIMESTAMP_AT, "it follows the base timestamp"

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
SEQUENCE_MODULUS = 2**31


T = TypeVar("T")


class _NewRow(Protocol):
    def __call__(self, kind: type[T], fields: Iterable[object], /) -> T: ...


new_row: _NewRow = vars(tuple)["__new__"]
"""`new_row(Row, fields)` is `Row._make(fields)` without the check of the length, in two thirds of the time.

For objects that every append creates.
"""


class BatchHeader(NamedTuple):
    """The fields of the header, in their order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written; compaction does not change it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, wrapped at 2^31; -1 without a producer id."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """True when `max_timestamp` is the timestamp of every record in the batch."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """True when the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """True for a control batch, for example a transaction marker."""
        return bool(self.attributes & CONTROL)


class PlacedBatch(NamedTuple):
    """A batch in a buffer: the bytes `buffer[position : position + size]`."""

    position: int
    size: int
    header: BatchHeader


_unpack = HEADER.unpack_from


def header_at(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Decodes the header at `position`; the buffer must have 61 bytes from there on."""
    return new_row(BatchHeader, _unpack(buffer, position))


def is_transactional(records: Buffer) -> bool:
    """True when the first batch of `records`, not validated yet, is transactional; False without a whole header."""
    return len(records) >= HEADER_SIZE and bool(records[ATTRIBUTES_AT + 1] & TRANSACTIONAL)


def headers(buffer: Buffer, *, partial_ok: bool = True) -> Iterator[PlacedBatch]:
    """Yields every complete batch of `buffer` in order.

    A partial batch at the end is ignored when `partial_ok` (as consumers do with a fetch response), else it raises
    CorruptLogError. A length that no batch can have always raises CorruptLogError.
    """
    end = len(buffer)
    position = 0
    while position + HEADER_SIZE <= end:
        header = new_row(BatchHeader, _unpack(buffer, position))
        size = header.length + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptLogError(
                f"batch at byte {position}: length {header.length} is less than the minimum, {LENGTH_MIN}"
            )
        if position + size > end:
            break
        yield new_row(PlacedBatch, (position, size, header))
        position += size
    if position != end and not partial_ok:
        raise CorruptLogError(f"batch at byte {position}: incomplete, only {end - position} bytes are there")


def headers_in(buffers: Sequence[Buffer]) -> Iterator[BatchHeader]:
    """Yields the headers of the whole batches in the bytes of `buffers`; a batch may span several buffers.

    A length that no batch can have ends the iteration: what follows it is not known.
    """
    carry = b""  # the beginning of a header
    held: BatchHeader | None = None  # of a batch that is not whole yet
    at = 0  # where the next header begins, counted from the buffer's beginning
    for buffer in buffers:
        view = memoryview(carry + bytes(buffer)) if carry else memoryview(buffer)
        end, carry = len(view), b""
        if held is not None and at <= end:
            yield held
            held = None
        while at + HEADER_SIZE <= end:
            header = new_row(BatchHeader, _unpack(view, at))
            if header.size < HEADER_SIZE:
                return
            at += header.size
            if at > end:
                held = header
            else:
                yield header
        if at < end:
            carry = bytes(view[at:])
        at = max(at - end, 0)
