"""Parses the key and value of a record for printing: as text, as numbers, or as JSON for a coordinator's records.

Owns: the parsers behind `--print-data-log`, `--key-decoder-class`, `--offsets-decoder`, `--transaction-log-decoder`,
`--share-group-state-decoder`.
A coordinator's parser prints a description of a record of unknown type; it raises only for a record without a key.
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
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    SUBSCRIPTION,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    VALUES,
)
from .java_text import Json, json_text, text
from .schema import ByteCursor, MessageError, Struct, read_message
from .source import DumpError

Parsed = tuple[str | None, str | None]
"""The key and the payload to print; None is not printed."""

Decoder = Callable[[bytes], str]

CONSUMER_PROTOCOL = "consumer"
_GROUP_METADATA = 2
TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""The names of the states of a transaction, by id; Kafka 4.4 prints the id of any other state as text."""


class MessageParser(Protocol):
    """Parses the key and value of a record into printable text."""

    def parse(self, record: Record) -> Parsed:
        """Returns the texts to print; DumpError where Kafka's tool throws."""
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
"""Kafka's decoders with a deterministic output (`DefaultDecoder` prints the address of an object)."""


class TextParser:
    """Parses keys and values with a decoder for each."""

    def __init__(self, key: Decoder = text, value: Decoder = text) -> None:
        self._key = key
        self._value = value

    def parse(self, record: Record) -> Parsed:
        """Returns the decoded key and value; None for a null key or value."""
        key = None if record.key is None else self._key(record.key)
        return key, None if record.value is None else self._value(record.value)


class CoordinatorParser:
    """Parses the records of a coordinator's topic by their type."""

    def __init__(self, keys: Mapping[int, Struct], values: Mapping[int, Struct]) -> None:
        self._keys = keys
        self._values = values

    def parse(self, record: Record) -> Parsed:
        """Returns the key and the payload as JSON; DumpError for a record without a key."""
        if record.key is None:
            raise DumpError(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        try:
            data = ByteCursor(record.key)
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
        data = ByteCursor(content)
        version = _version(data, "value")
        if not 0 <= version <= schema.newest:
            raise MessageError(f"Found an unknown record version {version} for {kind} type")
        value = _message(schema, data, version, "value")
        if kind == _GROUP_METADATA and schema is VALUES[kind]:
            _open_consumer_protocol(value)
        if schema is TRANSACTION_VALUES.get(kind):
            status = value["transactionStatus"]
            assert isinstance(status, int)
            value["transactionStatus"] = (
                TRANSACTION_STATES[status] if 0 <= status < len(TRANSACTION_STATES) else str(status)
            )
        return json_text({"version": str(version), "data": value})


def offsets_parser() -> CoordinatorParser:
    """Returns the parser for `__consumer_offsets`."""
    return CoordinatorParser(KEYS, VALUES)


def transactions_parser() -> CoordinatorParser:
    """Returns the parser for `__transaction_state`."""
    return CoordinatorParser(TRANSACTION_KEYS, TRANSACTION_VALUES)


def share_states_parser() -> CoordinatorParser:
    """Returns the parser for `__share_group_state`."""
    return CoordinatorParser(SHARE_STATE_KEYS, SHARE_STATE_VALUES)


def _version(data: ByteCursor, name: str) -> int:
    try:
        return data.number("int16")
    except MessageError:
        raise MessageError(f"Could not read version from {name}'s buffer.") from None


def _message(schema: Struct, data: ByteCursor, version: int, name: str) -> dict[str, Json]:
    # The number at the front of a key is its type, not a version: every key schema has version 0 only.
    try:
        return read_message(schema, data, version if name == "value" else 0)
    except MessageError as error:
        raise MessageError(
            f"Could not read record with version {version} from {name}'s buffer due to: {error}."
        ) from None


def _open_consumer_protocol(group: dict[str, Json]) -> None:
    """Decodes the subscriptions and assignments of consumers, which are messages; those of others stay bytes."""
    members = group["members"]
    if group["protocolType"] != CONSUMER_PROTOCOL or not isinstance(members, list):
        return
    for member in members:
        assert isinstance(member, dict)
        for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
            content = member[name]
            assert isinstance(content, bytes)
            try:
                data = ByteCursor(content)
                member[name] = read_message(schema, data, data.number("int16"))
            except MessageError:
                continue
