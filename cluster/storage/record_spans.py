"""The records of a batch as byte ranges: found without decoding them.

Compaction copies records by their ranges, and appends to compacted topics look at their keys. Pure.
"""

from __future__ import annotations

from ..errors import CorruptLogError
from ..wire.records import read_varint

RecordSpan = tuple[int, int, int, bytes | None, bool]
"""One record in the decompressed records of a batch: start (of its length field), end, offset delta, key, whether it
has a value. A plain tuple, because compaction makes two for every record."""


def record_spans(data: bytes, count: int) -> list[RecordSpan]:
    """The range of each of the `count` records in `data`; CorruptLogError when the bytes are no records."""
    try:
        return _walk(data, count)
    except IndexError as error:
        raise CorruptLogError(f"not a batch of records: {error}") from None


def _walk(data: bytes, count: int) -> list[RecordSpan]:
    spans: list[RecordSpan] = []
    note = spans.append
    size_of_all = len(data)
    at = 0
    for _ in range(count):
        start = at
        byte = data[at]
        following = data[at + 1]
        if byte < 0x80:
            size, at = byte >> 1, at + 1
        elif following < 0x80:  # up to 8 KiB: nearly always
            size, at = (byte & 0x7F | following << 7) >> 1, at + 2
        else:
            size, at = read_varint(data, at)
        end = at + size
        at += 1  # skips the attributes; the loop skips the time delta
        while data[at] >= 0x80:
            at += 1
        at += 1
        byte = data[at]
        if byte < 0x80:
            delta, at = byte >> 1, at + 1  # offset deltas are never negative
        else:
            delta, at = read_varint(data, at)
        byte = data[at]
        if byte < 0x80:
            size, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            size, at = read_varint(data, at)
        key = None
        if size >= 0:
            key = data[at : at + size]
            at += size
        # the length of a null value is negative, which is written as an odd number
        note((start, end, delta, key, not data[at] & 1))
        if not at < end <= size_of_all:
            raise IndexError(f"record from byte {start} to {end} of {size_of_all}")
        at = end
    return spans
