"""Log files that no broker wrote: every coordinator record type, and the kinds of damage that a dump must report.

Owns: `write_samples` (records of all types and versions by their schemas, with values of every shape) and
`write_damaged`. Kafka's own tool reads both once (`kafka_writes.py`), so that the comparison shows a wrong schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c
from harrow.cluster.dump.coordinator_schemas import (
    ASSIGNMENT,
    KEYS,
    SUBSCRIPTION,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    VALUES,
)
from harrow.cluster.dump.schema import Field, Kind, Many, Struct
from harrow.cluster.wire.batches import NewRecord, build_batch

WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2}
TIME = 1_700_000_000_000
WORDS = ("", 'say "hi"', "žluťoučký", "tab\tand\x01\x1f\x7f/", "plain-7", "emoji 🙂\u2028")
OFFSETS = "odd_offsets/00000000000000000000.log"
TRANSACTIONS = "odd_transaction_log/00000000000000000000.log"


NEWER = b"\0\7" + bytes(4) + b"\xff" * 4 + bytes(8) + b"\xff\xff"
"""An empty subscription of a future version: Kafka reads it."""


class Encoder:
    """Encodes sample values by a schema; every call of `message` uses other values."""

    def __init__(self) -> None:
        self.turn = 0

    def message(self, schema: Struct, version: int) -> bytes:
        """Return the bytes after the version."""
        return self._struct(schema, version, flexible=version >= schema.flexible)

    def _struct(self, schema: Struct, version: int, *, flexible: bool) -> bytes:
        out, tagged = bytearray(), list[bytes]()
        for member in schema.fields:
            if not member.since <= version <= member.until:
                continue
            self.turn += 1
            if member.tag is None:
                out += self._value(member, member.kind, version, flexible=flexible)
            elif self.turn % 3:
                value = self._value(member, member.kind, version, flexible=flexible)
                tagged.append(varint(member.tag) + varint(len(value)) + value)
        if flexible:
            out += varint(len(tagged) + 1) + b"".join(tagged) + varint(77) + varint(2) + b"??"
        return bytes(out)

    def _value(self, member: Field, kind: Kind, version: int, *, flexible: bool) -> bytes:
        is_null = member.nullable and self.turn % 4 == 1
        if isinstance(kind, Struct):
            if is_null:
                return b"\xff" if member.tag is None else b"\0"
            prefix = b"\1" if member.nullable else b""
            return prefix + self._struct(kind, version, flexible=flexible)
        if isinstance(kind, Many):
            count = self.turn % 3
            item = Field(name="item", kind=kind.item)
            items = [self._value(item, kind.item, version, flexible=flexible) for _ in range(count)]
            return length(None if is_null else count, 4, flexible) + (b"" if is_null else b"".join(items))
        if kind in WIDTHS:
            value = (self.turn * 2_654_435_761) % (1 << 8 * WIDTHS[kind])
            return (0 if self.turn % 5 == 0 else value).to_bytes(WIDTHS[kind], "big")
        if kind == "uuid":
            return bytes(16) if self.turn % 5 == 0 else bytes((self.turn * i) % 256 for i in range(16))
        width = 2 if kind == "string" else 4
        if is_null:
            return length(None, width, flexible)
        self.turn += 1
        content = WORDS[self.turn % len(WORDS)].encode() if kind == "string" else bytes(range(self.turn % 9))
        return length(len(content), width, flexible) + content


def varint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def length(size: int | None, width: int, flexible: bool) -> bytes:
    """Encode the length of the following bytes; None means that the value is null."""
    if flexible:
        return varint(0 if size is None else size + 1)
    return (-1 if size is None else size).to_bytes(width, "big", signed=True)


def _all_versions(keys: dict[int, Struct], values: dict[int, Struct], times: int) -> Iterator[NewRecord]:
    encoder = Encoder()
    for kind, schema in sorted(values.items()):
        for version in range(schema.newest + 1):
            for _ in range(times):
                key = struct.pack(">h", kind) + encoder.message(keys[kind], 0)
                yield key, struct.pack(">h", version) + encoder.message(schema, version), ()
        yield struct.pack(">h", kind) + encoder.message(keys[kind], 0), None, ()


def _classic_groups() -> Iterator[NewRecord]:
    """Subscriptions and assignments that are valid messages, and some that are not."""
    encoder = Encoder()
    key = b"\0\2" + b"\0\5group"
    inner = [
        struct.pack(">h", version) + encoder.message(schema, min(version, schema.newest))
        for schema in (SUBSCRIPTION, ASSIGNMENT)
        for version in (0, 1, 2, 3, 7)
    ]
    for kind in ("consumer", "connect"):
        for first, second in zip([*inner[:5], b"\0", b"", NEWER], [*inner[5:], b"\0\1\0", b"", b""], strict=True):
            member = b"\0\1m\xff\xff\0\1c\0\1h" + struct.pack(">ii", 7, 8)
            member += length(len(first), 4, False) + first + length(len(second), 4, False) + second
            head = length(len(kind), 2, False) + kind.encode() + struct.pack(">i", 3)
            yield key, b"\0\3" + head + b"\0\1p\xff\xff" + struct.pack(">qi", TIME, 1) + member, ()


BROKEN: tuple[NewRecord, ...] = (
    (b"\0\x63who", b"?", ()),
    (b"\0", b"\0\3", ()),
    (b"", None, ()),
    (b"\0\2\0\5gr", b"\0\3", ()),
    (b"\0\2\xff\xff", b"\0\3", ()),
    (b"\0\2\0\5group", b"\0", ()),
    (b"\0\2\0\5group", b"\0\x09", ()),
    (b"\0\2\0\5group", b"\xff\xff", ()),
    (b"\0\2\0\5group", b"\0\3\0\1c\0\0\0\1", ()),
    (b"\0\2\0\5group", b"\0\3\0\1c\0\0\0\1\xff\xff\xff\xff" + bytes(8) + b"\0\xff\xff\xff", ()),
    (b"\0\3\0\1g", b"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff", ()),
    (b"\0\3\0\1g", b"\0\0\0\0\0\1", ()),
    (b"\0\1\0\1g\0\1t\0\0\0\1trailing", b"\0\3" + bytes(40), ()),
)
"""Unknown types, and bytes that end too early."""


def write_samples(folder: Path) -> None:
    """Write `OFFSETS` and `TRANSACTIONS` to `folder`."""
    rows = [*_all_versions(KEYS, VALUES, 5), *_classic_groups(), *BROKEN]
    _write(folder / OFFSETS, rows)
    _write(folder / TRANSACTIONS, [*_all_versions(TRANSACTION_KEYS, TRANSACTION_VALUES, 12), *BROKEN[:3]])


def _write(path: Path, rows: list[NewRecord]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    batches = [
        build_batch(rows[at : at + 20], timestamp_ms=TIME + at, base_offset=at, codec=4)
        for at in range(0, len(rows), 20)
    ]
    path.write_bytes(b"".join(batches))


def write_damaged(folder: Path, *, source: Path) -> None:
    """Write `damaged/`: a segment of `source` (a log folder with base offset 0) whose files no longer agree."""
    target = folder / "damaged"
    target.mkdir(parents=True, exist_ok=True)
    name = f"{0:020d}"
    log = bytearray((source / f"{name}.log").read_bytes())
    log[20] ^= 1  # the first batch's CRC
    control = [(struct.pack(">hh", 0, 9), b"", ())]
    marker = [(struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 41), ())]
    for base, records in ((1000, control), (1005, marker)):
        log += build_batch(records, timestamp_ms=TIME, base_offset=base, is_control=True)
    log += bytes(range(30, 60)) + b"\x7f\xff\xff\xff"  # a length greater than the remaining bytes
    (target / f"{name}.log").write_bytes(log[:-4])
    index = bytearray((source / f"{name}.index").read_bytes())
    index[3] += 1
    index[-5] += 2
    (target / f"{name}.index").write_bytes(index + bytes(64))
    times = (source / f"{name}.timeindex").read_bytes()
    rows = [struct.unpack(">qi", times[at : at + 12]) for at in range(0, len(times), 12)]
    odd = [rows[0], (rows[1][0] + 7, rows[1][1]), (rows[0][0] - 5, rows[2][1]), (TIME * 2, 10), (TIME * 2 + 1, 5000)]
    (target / f"{name}.timeindex").write_bytes(b"".join(struct.pack(">qi", *row) for row in odd) + bytes(36))
    _damaged_snapshots(target)
    entry = struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    (target / f"{name}.txnindex").write_bytes(entry * 2 + entry[:33])
    (target / f"{name}.deleted").write_bytes(b"x")


def _damaged_snapshots(target: Path) -> None:
    entries = struct.pack(">qhiqiqiq", 9, 1, 3, 50, 10, TIME, -1, 40)
    entries += struct.pack(">qhiqiqiq", 10, 0, -1, -1, 0, -1, 4, -1)
    body = struct.pack(">i", 2) + entries
    files = {
        1: b"\0\1" + struct.pack(">I", crc32c(body)) + body,
        2: b"\0\1" + struct.pack(">I", 12345) + body,
        3: b"\0\2" + struct.pack(">I", crc32c(body)) + body,
        4: b"\0\1" + struct.pack(">Ii", 0, 1 << 20) + entries,
        5: b"\0\1" + struct.pack(">Ii", 0, 3) + entries,
        6: b"\0\1" + struct.pack(">Ii", 0, -1),
        7: b"\0\1\0",
        8: b"\0\1" + struct.pack(">I", crc32c(body + b"more")) + body + b"more",
    }
    for offset, data in files.items():
        (target / f"{offset:020d}.snapshot").write_bytes(data)
