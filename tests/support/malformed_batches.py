"""Record batches that may lie in any field, with a right CRC: as `build_batch` of the sources never makes them.

Fields take a number where the length of a byte string is written without its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c
from harrow.cluster.wire.batch_header import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_SIZE, LENGTH_MIN
from harrow.cluster.wire.compression import compress
from harrow.cluster.wire.records import write_varint

Text = bytes | int | None


def varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def text(content: Text) -> bytes:
    """A length and its bytes, null, or the length alone."""
    if isinstance(content, int):
        return varint(content)
    return varint(-1) if content is None else varint(len(content)) + content


def record(
    delta: int = 0,
    *,
    time: int = 0,
    key: Text = b"k",
    value: Text = b"v",
    headers: Iterable[tuple[Text, Text]] = ((b"h", b"1"),),
    count: int | None = None,
    length: int | None = None,
    attributes: int = 0,
    behind: bytes = b"",
) -> bytes:
    """A record; `count` of its headers, `length` of the record as they are written."""
    pairs = list(headers)
    body = bytes((attributes,)) + varint(time) + varint(delta) + text(key) + text(value)
    body += varint(len(pairs) if count is None else count)
    body += b"".join(text(name) + text(content) for name, content in pairs) + behind
    return varint(len(body) if length is None else length) + body


def batch_of(
    records: bytes,
    count: int,
    *,
    codec: int = 0,
    payload: bytes | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    base_ms: int = 1_700_000_000_000,
    max_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """A batch of these bytes; `payload`: what lies behind the header instead of the compressed records."""
    data = compress(codec, records) if payload is None else payload
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        0,
        LENGTH_MIN + len(data),
        -1,
        2,
        0,
        attributes | codec,
        count - 1 if last_delta is None else last_delta,
        base_ms,
        base_ms if max_ms is None else max_ms,
        *producer,
        count,
    )
    batch += data
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


GOOD = record(0), record(1)

MALFORMED: dict[str, tuple[bytes, int]] = {
    "more records claimed": (b"".join(GOOD), 3),
    "fewer records claimed": (b"".join(GOOD), 1),
    "a byte behind the records": (b"".join(GOOD) + b"\0", 2),
    "bytes behind the records": (b"".join(GOOD) + b"behind them", 2),
    "no bytes": (b"", 1),
    "length 0": (GOOD[0] + record(1, length=0), 2),
    "length -1": (GOOD[0] + record(1, length=-1), 2),
    "length beyond the batch": (GOOD[0] + record(1, length=60), 2),
    "length too short": (record(0, length=8) + GOOD[1], 2),
    "length of the largest integer": (GOOD[0] + record(1, length=2**31 - 1), 2),
    "length of more than 32 bits": (GOOD[0] + record(1, length=2**40), 2),
    "a length alone": (GOOD[0] + b"\x10", 2),
    "bytes at the end of a record": (record(0, behind=b"xx") + GOOD[1], 2),
    "a negative number of headers": (record(0, headers=(), count=-1) + GOOD[1], 2),
    "more headers claimed": (record(0, count=3) + GOOD[1], 2),
    "fewer headers claimed": (record(0, count=0) + GOOD[1], 2),
    "a header key of null": (record(0, headers=((None, b"1"),)) + GOOD[1], 2),
    "a header key of length -2": (record(0, headers=((-2, b"1"),)) + GOOD[1], 2),
    "a header key beyond the batch": (record(0, headers=((100, b""),)) + GOOD[1], 2),
    "a header value beyond the batch": (GOOD[0] + record(1, headers=((b"h", 100),)), 2),
    "a key beyond the batch": (record(0, key=100) + GOOD[1], 2),
    "a value beyond the batch": (record(0, value=100) + GOOD[1], 2),
    "a key length of 6 bytes": (b"\x1a\0\0\0\x82\x80\x80\x80\x80\x00k\x02v\0" + GOOD[1], 2),
}
"""Records that do not parse, and the count in the header of their batch. Apache Kafka refuses each, uncompressed."""

WRONG_OFFSETS: dict[str, tuple[bytes, int]] = {
    "the same twice": (record(0) + record(0), 2),
    "backwards": (record(1) + record(0), 2),
    "with a gap": (record(0) + record(2), 2),
    "from -1 on": (record(-1) + record(0), 2),
    "from 5 on": (record(5) + record(6), 2),
}
"""Records with offset deltas other than 0, 1, 2, …"""
