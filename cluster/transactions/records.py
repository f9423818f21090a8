"""Keys and values of `__transaction_state` in Kafka's own binary format (F2).

Owns: encoding and decoding; no log, no state.

    key v0     {transactional id}
    value v0   {producer id, producer epoch, timeout, state, partitions by topic, last update, start}
    value v1   the same, flexible, with the tagged fields previous producer id (0), next producer id (1),
               client transaction version (2); a field with its default is not written

Both versions are read, v1 is written, as Kafka does from transaction version 1 on. A null value is a tombstone. The
partitions of an Empty transaction are null.

May fail: `RecordFormatError` for bytes that are no such record; the coordinator loader reports and skips the record.
Source: TransactionLogKey.json and TransactionLogValue.json of Apache Kafka, and its TransactionLog.
"""

from __future__ import annotations

import struct
from itertools import groupby

from ..coordinators import RecordFormatError
from ..errors import WireError
from ..host.seam import Buffer
from ..ids import TopicPartition
from ..wire.decoding import read_varint
from ..wire.primitives import varint
from .states import DEAD, PREPARE_EPOCH_FENCE, TransactionState
from .transaction import NO_PRODUCER_ID, TransactionValue

KEY_VERSION = 0
VALUE_VERSION = 1
_HEAD = struct.Struct(">hq")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_EPOCH_TO_STATE = struct.Struct(">hib")
_TIMES = struct.Struct(">qq")
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
_NEVER_LOGGED = frozenset({DEAD, PREPARE_EPOCH_FENCE})


def encode_key(transactional_id: str) -> bytes:
    """Key v0."""
    text = transactional_id.encode()
    return _I16.pack(KEY_VERSION) + _I16.pack(len(text)) + text


def decode_key(key: Buffer) -> str:
    """The transactional id of a key."""
    data = bytes(key)
    if len(data) < 4 or _I16.unpack_from(data)[0] != KEY_VERSION:
        raise RecordFormatError(f"no key of __transaction_state: {data[:8].hex()}")
    size = int(_I16.unpack_from(data, 2)[0])
    if len(data) != 4 + size:
        raise RecordFormatError(f"a transactional id of {size} bytes in a key of {len(data)}")
    return _text(data[4:])


def encode_value(value: TransactionValue) -> bytes:
    """Value v1."""
    assert value.state not in _NEVER_LOGGED, f"{value.state} is never in the log"
    out = bytearray(_HEAD.pack(VALUE_VERSION, value.producer_id))
    out += _EPOCH_TO_STATE.pack(value.producer_epoch, value.timeout_ms, value.state.value)
    _write_partitions(out, value)
    out += _TIMES.pack(value.update_ms, value.start_ms)
    tags = [
        (_PREVIOUS_ID, _I64, value.previous_producer_id, NO_PRODUCER_ID),
        (_NEXT_ID, _I64, value.next_producer_id, NO_PRODUCER_ID),
        (_CLIENT_VERSION, _I16, value.client_version, 0),
    ]
    written = [(tag, kind.pack(field)) for tag, kind, field, default in tags if field != default]
    out += varint(len(written))
    for tag, content in written:
        out += varint(tag)
        out += varint(len(content))
        out += content
    return bytes(out)


def _write_partitions(out: bytearray, value: TransactionValue) -> None:
    if value.state is TransactionState.EMPTY:
        assert not value.partitions, f"an Empty transaction with {value.partitions}"
        out += varint(0)
        return
    topics = [(name, list(rows)) for name, rows in groupby(value.partitions, lambda tp: tp.topic)]
    out += varint(len(topics) + 1)
    for name, rows in topics:
        text = name.encode()
        out += varint(len(text) + 1)
        out += text
        out += varint(len(rows) + 1)
        for tp in rows:
            out += _I32.pack(tp.partition)
        out += varint(0)


def decode_value(value: Buffer) -> TransactionValue:
    """A value of version 0 or 1."""
    data = bytes(value)
    try:
        version, producer_id = _HEAD.unpack_from(data)
        if version not in (0, 1):
            raise RecordFormatError(f"value version {version}; 0 and 1 are known")
        reader = _Reader(data, _HEAD.size, flexible=version == 1)
        epoch, timeout_ms, number = reader.take(_EPOCH_TO_STATE)
        partitions = reader.partitions()
        update_ms, start_ms = reader.take(_TIMES)
        tags = reader.tags()
        state = TransactionState(number)
    except (struct.error, IndexError, ValueError, WireError) as error:
        raise RecordFormatError(f"no value of __transaction_state: {error}") from None
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=tags.get(_PREVIOUS_ID, NO_PRODUCER_ID),
        next_producer_id=tags.get(_NEXT_ID, NO_PRODUCER_ID),
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        start_ms=start_ms,
        update_ms=update_ms,
        client_version=tags.get(_CLIENT_VERSION, 0),
    )


class _Reader:
    """Reads the fields after the producer id, in both versions."""

    def __init__(self, data: bytes, at: int, *, flexible: bool) -> None:
        self._data = data
        self._at = at
        self._flexible = flexible

    def take(self, kind: struct.Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return found

    def _unsigned(self) -> int:
        number, self._at = read_varint(self._data, self._at)
        return number

    def _count(self) -> int:
        """The length of an array; -1 for null."""
        return self._unsigned() - 1 if self._flexible else self.take(_I32)[0]

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if size < 0 or len(found) != size:
            raise IndexError(f"a field of {size} bytes at {self._at} of {len(self._data)}")
        self._at += size
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        rows: list[TopicPartition] = []
        for _ in range(max(0, self._count())):
            size = self._unsigned() - 1 if self._flexible else self.take(_I16)[0]
            topic = _text(self._bytes(size))
            rows += [TopicPartition(topic, self.take(_I32)[0]) for _ in range(self._count())]
            self.tags()
        return tuple(sorted(rows))

    def tags(self) -> dict[int, int]:
        """The tagged fields that are numbers, by tag; empty in version 0."""
        found: dict[int, int] = {}
        if not self._flexible:
            return found
        for _ in range(self._unsigned()):
            tag = self._unsigned()
            found[tag] = int.from_bytes(self._bytes(self._unsigned()), "big", signed=True)
        return found


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RecordFormatError(f"a string that is not UTF-8: {error}") from None
