"""What a record's key and value say: text, numbers, or a coordinator's records as JSON.

Owns: the parsers behind `--print-data-log`, `--key-decoder-class`, `--offsets-decoder`, `--transaction-log-decoder`.
A record that a coordinator's parser does not know is described, not refused; only one without a key is.
Source: Kafka's `DumpLogSegments.CoordinatorRecordMessageParser`, `OffsetsMessageParser`, `CoordinatorRecordSerde`,
`org.apache.kafka.tools.api.Decoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Protocol

from ..wire.records import Record
from .coordinator_schemas import (
    ASSIGNMENT,
    KEYS,
    SUBSCRIPTION,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    VALUES,
)
from .java_text import Json, json_text, text
from .schema import Bytes, MessageError, Struct, read_message
from .source import DumpError

Parsed = tuple[str | None, str | None]
"""Key and payload to be printed; None is not printed at all."""

Decoder = Callable[[bytes], str]

CONSUMER_PROTOCOL = "consumer"
_GROUP_METADATA = 2


class MessageParser(Protocol):
    """Turns a record into what is printed of it."""

    def parse(self, record: Record) -> Parsed:
        """DumpError where Kafka's tool would throw."""
        ...


def _number(form: str, name: str) -> Decoder:
    layout = struct.Struct(form)

    def decode(data: bytes) -> str:
        if len(data) != layout.size:
            raise DumpError(f"Size of data received by {name}Deserializer is not {layout.size}")
        return str(layout.unpack(data)[0])

    return decode


DECODERS: dict[str, Decoder] = {
    "org.apache.kafka.tools.api.StringDecoder": text,
    "org.apache.kafka.tools.api.IntegerDecoder": _number(">i", "Integer"),
    "org.apache.kafka.tools.api.LongDecoder": _number(">q", "Long"),
}
"""Kafka's own decoders that print the same each time (`DefaultDecoder` prints an object's address)."""


class TextParser:
    """Keys and values by a decoder each."""

    def __init__(self, key: Decoder = text, value: Decoder = text) -> None:
        self._key = key
        self._value = value

    def parse(self, record: Record) -> Parsed:
        """Null keys and values are not printed."""
        key = None if record.key is None else self._key(record.key)
        return key, None if record.value is None else self._value(record.value)


class CoordinatorParser:
    """Records of a coordinator's topic: keys and values by type."""

    def __init__(self, keys: Mapping[int, Struct], values: Mapping[int, Struct]) -> None:
        self._keys = keys
        self._values = values

    def parse(self, record: Record) -> Parsed:
        """DumpError for a record without a key."""
        if record.key is None:
            raise DumpError(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            data = Bytes(record.key)
            kind = _version(data, "key")
            if kind not in self._keys:
                return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
            key = _message(self._keys[kind], data, kind, "key")
            payload = "<DELETE>" if record.value is None else self._payload(kind, record.value)
        except MessageError as error:
            return f"Error at offset {record.offset}, skipping. {error}", None
        return json_text({"type": str(kind), "data": key}), payload

    def _payload(self, kind: int, content: bytes) -> str:
        schema = self._values[kind]
        data = Bytes(content)
        version = _version(data, "value")
        if not 0 <= version <= schema.newest:
            raise MessageError(f"Found an unknown record version {version} for {kind} type")
        value = _message(schema, data, version, "value")
        if kind == _GROUP_METADATA and schema is VALUES[kind]:
            _open_consumer_protocol(value)
        return json_text({"version": str(version), "data": value})


def offsets_parser() -> CoordinatorParser:
    """For `__consumer_offsets`."""
    return CoordinatorParser(KEYS, VALUES)


def transactions_parser() -> CoordinatorParser:
    """For `__transaction_state`."""
    return CoordinatorParser(TRANSACTION_KEYS, TRANSACTION_VALUES)


def _version(data: Bytes, name: str) -> int:
    try:
        return data.number("int16")
    except MessageError:
        raise MessageError(f"Could not read version from {name}'s buffer.") from None


def _message(schema: Struct, data: Bytes, version: int, name: str) -> dict[str, Json]:
    # a key has one version only, whatever its type's number is
    try:
        return read_message(schema, data, version if name == "value" else 0)
    except MessageError as error:
        raise MessageError(
            f"Could not read record with version {version} from {name}'s buffer due to: {error}."
        ) from None


def _open_consumer_protocol(group: dict[str, Json]) -> None:
    """Subscriptions and assignments of consumers are messages themselves; others stay bytes."""
    members = group["members"]
    if group["protocolType"] != CONSUMER_PROTOCOL or not isinstance(members, list):
        return
    for member in members:
        assert isinstance(member, dict)
        for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
            content = member[name]
            assert isinstance(content, bytes)
            try:
                data = Bytes(content)
                member[name] = read_message(schema, data, data.number("int16"))
            except MessageError:
                continue
