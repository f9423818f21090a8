"""Record batches that may lie in every field of the header and of each record, with a correct CRC unless asked
otherwise.

Owns: the layout of format v2 as Kafka documents it, written a second time on purpose. `encode` takes a description (a
plain dict, so that a case can be kept as JSON) and `decode` returns one. A field that the description does not name has
the value that a correct producer would send.

Description of a batch: `records` (list of records), `codec` (0 none, 1 gzip), `payload` (bytes instead of the
records) and each header field by name. Description of a record: `key`, `value` (bytes or None), `headers` (list of
pairs), and the lies `length`, `offsetDelta`, `timestampDelta`, `attributes`, `headerCount`, `tail` (bytes behind the
record). Source: `DefaultRecordBatch`, `DefaultRecord` of Apache Kafka.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Mapping
from typing import Any

from crc32c import crc32c

Description = dict[str, Any]

HEAD = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21
CRC_AT = 17
LENGTH_FROM = 12
NAMES: tuple[str, ...] = (
    "baseOffset",
    "length",
    "leaderEpoch",
    "magic",
    "crc",
    "attributes",
    "lastOffsetDelta",
    "baseTimestamp",
    "maxTimestamp",
    "producerId",
    "producerEpoch",
    "baseSequence",
    "count",
)
WIDTHS: dict[str, int] = dict(zip(NAMES, (64, 32, 32, 8, 32, 16, 32, 64, 64, 64, 16, 32, 32), strict=True))
GZIP = 1
CONTROL = 0x20
BASE_MS = (time.time_ns() // 1_000_000) - 20 * 3_600_000
"""The time of all records of this process, some hours ago: segments of older ones roll, and retention deletes them."""


def zigzag(number: int) -> bytes:
    """Encodes a signed number as Kafka's varint or varlong."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _chunk(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def encode_record(record: Mapping[str, Any], index: int) -> bytes:
    """Encodes record number `index` of a batch, its length included."""
    headers = record.get("headers", ())
    body = bytes([record.get("attributes", 0) & 0xFF])
    body += zigzag(record.get("timestampDelta", 0)) + zigzag(record.get("offsetDelta", index))
    body += _chunk(record.get("key", b"k")) + _chunk(record.get("value", b"v"))
    body += zigzag(record.get("headerCount", len(headers)))
    body += b"".join(_chunk(key) + _chunk(value) for key, value in headers)
    return zigzag(record.get("length", len(body))) + body + bytes(record.get("tail", b""))


def encode(batch: Mapping[str, Any]) -> bytes:
    """Encodes one batch."""
    records = batch.get("records", ({},))
    codec = batch.get("codec", 0)
    payload = batch.get("payload")
    if payload is None:
        payload = b"".join(encode_record(record, index) for index, record in enumerate(records))
        if codec == GZIP:
            payload = gzip.compress(payload, mtime=0)
    times = [BASE_MS + record.get("timestampDelta", 0) for record in records] or [BASE_MS]
    fields: dict[str, int] = {
        "baseOffset": 0,
        "length": HEAD.size - LENGTH_FROM + len(payload),
        "leaderEpoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": codec,
        "lastOffsetDelta": len(records) - 1,
        "baseTimestamp": BASE_MS,
        "maxTimestamp": max(times),
        "producerId": -1,
        "producerEpoch": -1,
        "baseSequence": -1,
        "count": len(records),
    }
    fields |= {name: batch[name] for name in NAMES if name in batch}
    out = bytearray(HEAD.pack(*(_fit(name, fields[name]) for name in NAMES)) + payload)
    if "crc" not in batch:
        struct.pack_into(">I", out, CRC_AT, crc32c(bytes(out[CRC_FROM:])))
    return bytes(out)


def _fit(name: str, value: int) -> int:
    """Cuts a number to its field, signed except the CRC."""
    width = WIDTHS[name]
    value &= (1 << width) - 1
    return value if name == "crc" or value < 1 << (width - 1) else value - (1 << width)


def decode(data: bytes) -> list[Description]:
    """Decodes the header of each whole batch; its records stay bytes (`payload`), the CRC becomes a statement."""
    found: list[Description] = []
    at = 0
    while at + HEAD.size <= len(data):
        fields = dict(zip(NAMES, HEAD.unpack_from(data, at), strict=True))
        end = at + LENGTH_FROM + fields["length"]
        if end > len(data) or end < at + HEAD.size:
            break
        fields["crc"] = crc32c(data[at + CRC_FROM : end]) == fields["crc"]
        found.append({**fields, "payload": data[at + HEAD.size : end]})
        at = end
    return found
