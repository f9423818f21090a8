"""The batches in the bytes of a segment's file: walking their headers.

Pure functions on bytes and on an open file. A header says how long its batch is; nothing else is decoded.
What may fail: OSError from the disk; CorruptLogError where bytes cannot be a batch. Source: Kafka's `FileRecords`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import CorruptLogError
from ..host.seam import DiskFile
from ..wire.batches import HEADER_SIZE, LOG_OVERHEAD, SPAN, BatchHeader, header_at

SCAN_BYTES = 256 * 1024
"""Bytes that one read takes when headers are walked."""

_span = SPAN.unpack_from


def scan_headers(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [position, end); CorruptLogError where a batch is cut off."""
    while position < end:
        data = file.read_at(position, min(SCAN_BYTES, end - position))
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = header_at(data, at)
            if header.size < HEADER_SIZE:
                raise no_batch(file.path, position + at, f"length {header.length}")
            yield position + at, header
            at += header.size
        if at == 0:
            raise no_batch(file.path, position, "cut off")
        position += at


def whole_batches(data: bytes, upper: int, path: str, position: int) -> int:
    """How many bytes of `data`, read from `path` at `position`, are whole batches with base offsets below `upper`."""
    at = 0
    end = len(data)
    while at + HEADER_SIZE <= end:
        base, length, _ = _span(data, at)
        following = at + length + LOG_OVERHEAD
        if base >= upper or following > end:
            break
        if following - at < HEADER_SIZE:
            raise no_batch(path, position + at, f"length {length}")
        at = following
    return at


def no_batch(path: str, position: int, what: str) -> CorruptLogError:
    """The error for bytes that cannot be a batch."""
    return CorruptLogError(f"{path}: no batch at byte {position}: {what}")
