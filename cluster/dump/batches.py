"""Walking the batches of a `.log` file as Kafka's `FileRecords` does, its refusals included.

Owns: where a batch begins and ends within a slice of the file, and what is wrong with one. A batch that the slice
ends within is not seen; zeroes where a batch should be are an error in Kafka's words.

Message formats v0 and v1 (magic 0, 1) are not read: no log of Harrow's has them, and Kafka 4 writes none.
Source: Kafka's `FileLogInputStream.nextBatch`, `FileRecords.slice`.
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from ..wire.batch_header import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    OFFSET_AND_LENGTH,
    BatchHeader,
    header_at,
)
from .source import DumpError, Reader, name_of

MAX_INT = 2**31 - 1
DELETE_HORIZON = 0x40
"""Attribute bit: the base timestamp is when tombstones may go (KIP-534)."""

_SMALLEST = 14
"""Bytes of the smallest record of format v0."""
_UP_TO_MAGIC = MAGIC_AT + 1
_FORMAT_V2 = 2


class FileBatch:
    """A batch in a file. Its records are read when asked for."""

    __slots__ = ("_reader", "header", "position")

    def __init__(self, reader: Reader, position: int, header: BatchHeader) -> None:
        self._reader = reader
        self.position = position
        self.header = header

    def read(self) -> bytes:
        """All its bytes."""
        return self._reader.read_at(self.position, self.header.size)

    @property
    def delete_horizon_ms(self) -> int:
        """When its tombstones may be removed; -1 where none is set."""
        header = self.header
        return header.base_timestamp if header.attributes & DELETE_HORIZON else -1

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`."""
        return "LogAppendTime" if self.header.is_log_append_time else "CreateTime"

    def is_valid(self, data: bytes) -> bool:
        """True when `data`, its bytes, are those that its CRC was taken of."""
        checked = memoryview(data)[ATTRIBUTES_AT:]
        return self.header.size >= HEADER_SIZE and crc32c(checked) == self.header.crc


def batches(
    reader: Reader, path: str, *, start: int = 0, most: int = MAX_INT
) -> Iterator[FileBatch]:
    """Every batch of the slice of `most` bytes at `start`; DumpError where Kafka throws."""
    size = reader.size()
    if not 0 <= start <= size:
        raise DumpError(f"{path}: slice from position {start} exceeds the file's end at {size}")
    end = min(start + most, size)
    position = start
    while position < end - _UP_TO_MAGIC:
        head = reader.read_at(position, HEADER_SIZE)
        _, length = OFFSET_AND_LENGTH.unpack_from(head)
        if length < _SMALLEST:
            raise DumpError(
                f"Found record size {length} smaller than minimum record overhead ({_SMALLEST}) "
                f"in file {name_of(path)}."
            )
        if position > end - LOG_OVERHEAD - length:
            return
        if head[MAGIC_AT] < _FORMAT_V2:
            raise DumpError(
                f"{path}: batch at position {position} has magic {head[MAGIC_AT]}; formats before 2 are not read"
            )
        if len(head) < HEADER_SIZE:
            raise DumpError(f"{path}: batch at position {position} is cut off within its header")
        yield FileBatch(reader, position, header_at(head))
        position += LOG_OVERHEAD + length
