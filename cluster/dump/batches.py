"""Iterates over the batches of a `.log` file as Kafka's `FileRecords` does, with the same errors.

Owns: where each batch begins and ends within a slice of the file, and which batches are errors. A batch that is
only partly inside the slice is ignored; zeroes in place of a batch are an error with Kafka's message.

Message formats v0 and v1 (magic 0, 1) are not supported: no log of Harrow's has them, and Kafka 4 does not write them.
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
from .source import DumpError, OpenFile, name_of

MAX_INT = 2**31 - 1
DELETE_HORIZON = 0x40
"""Attribute bit: the base timestamp is the delete horizon, the time when tombstones may be removed (KIP-534)."""

_SMALLEST = 14
"""Size of the smallest record of format v0, in bytes."""
_UP_TO_MAGIC = MAGIC_AT + 1
_FORMAT_V2 = 2


class FileBatch:
    """A batch in a file. Only `read` reads its records."""

    __slots__ = ("_file", "header", "position")

    def __init__(self, file: OpenFile, position: int, header: BatchHeader) -> None:
        self._file = file
        self.position = position
        self.header = header

    def read(self) -> bytes:
        """Reads all bytes of the batch."""
        return self._file.read_at(self.position, self.header.size)

    @property
    def delete_horizon_ms(self) -> int:
        """Time when the tombstones of the batch may be removed; -1 when it is not set."""
        header = self.header
        return header.base_timestamp if header.attributes & DELETE_HORIZON else -1

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`."""
        return "LogAppendTime" if self.header.is_log_append_time else "CreateTime"

    def is_valid(self, data: bytes) -> bool:
        """True when `data`, the bytes of the batch, match its CRC."""
        checked = memoryview(data)[ATTRIBUTES_AT:]
        return self.header.size >= HEADER_SIZE and crc32c(checked) == self.header.crc


def batches(file: OpenFile, path: str, *, start: int = 0, most: int = MAX_INT) -> Iterator[FileBatch]:
    """Yields every batch in the `most` bytes from `start` on; DumpError where Kafka throws."""
    size = file.size()
    if not 0 <= start <= size:
        raise DumpError(f"{path}: slice from position {start} exceeds the end of the file at {size}")
    end = min(start + most, size)
    position = start
    while position < end - _UP_TO_MAGIC:
        head = file.read_at(position, HEADER_SIZE)
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
                f"{path}: the batch at position {position} has magic {head[MAGIC_AT]}; only magic 2 is supported"
            )
        if len(head) < HEADER_SIZE:
            raise DumpError(f"{path}: the batch at position {position} has an incomplete header")
        yield FileBatch(file, position, header_at(head))
        position += LOG_OVERHEAD + length
