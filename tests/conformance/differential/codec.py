"""Encodes requests and decodes responses by Kafka's message files: shares no code with the brokers under test.

Owns: the wire form of every type, headers included. A body is a dict with the names of the message files in camel case;
a field without a value gets its default, and one that the version lacks is left out. Uuids are 32 hex digits.

The encoder can lie, because tests need it to: a string may be given as bytes (for bytes that are not UTF-8), None is
written for a field that cannot be null, and numbers are cut to their size.
Fails with `UndecodableError` on a response that the schema does not explain completely, left-over bytes included.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from .message_files import Field, Message, messages

Body = dict[str, Any]

SIZES = {"int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8}
SIGNED = {"int8", "int16", "int32", "int64"}
API_VERSIONS = 18
VARINT_BYTES_MAX = 10


class UndecodableError(ValueError):
    """A response that the schema of its version does not explain."""


def unsigned_varint(number: int) -> bytes:
    """Encodes a number of 0 and more in groups of 7 bits."""
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_bytes(kind: str, value: int) -> bytes:
    """Encodes a number of a fixed size; bits that do not fit are cut."""
    size = SIZES[kind]
    return (int(value) & ((1 << (8 * size)) - 1)).to_bytes(size, "big")


class Encoder:
    """Encodes the fields of one message in one version."""

    def __init__(self, message: Message, version: int) -> None:
        self._message = message
        self._version = version
        self._flexible = version in message.flexible

    def encode(self, body: Mapping[str, Any]) -> bytes:
        return self._struct(self._message.fields, body, self._flexible)

    def _struct(self, fields: tuple[Field, ...], body: Mapping[str, Any], flexible: bool) -> bytes:
        out = bytearray()
        tagged: dict[int, bytes] = {}
        for field in fields:
            if self._version not in field.versions:
                continue
            value = body.get(field.name, field.default)
            if field.tag is None or self._version not in field.tagged:
                out += self._value(field, value, flexible)
            elif value not in (field.default, default_of(field, self._version)):
                tagged[field.tag] = self._value(field, value, flexible)
        if flexible:
            out += unsigned_varint(len(tagged))
            for tag, content in sorted(tagged.items()):
                out += unsigned_varint(tag) + unsigned_varint(len(content)) + content
        return bytes(out)

    def _value(self, field: Field, value: Any, flexible: bool) -> bytes:
        if field.flexible is not None:
            flexible = self._version in field.flexible
        if not field.is_array:
            return self._item(field, field.kind, value, flexible)
        if value is None:
            return _length(-1, flexible, "int32")
        items = (self._element(field, item, flexible) for item in value)
        return _length(len(value), flexible, "int32") + b"".join(items)

    def _element(self, field: Field, value: Any, flexible: bool) -> bytes:
        if field.fields:
            return self._struct(field.fields, value, flexible)
        return self._item(field, field.item, value, flexible)

    def _item(self, field: Field, kind: str, value: Any, flexible: bool) -> bytes:
        if field.fields:
            marker = b""
            if self._version in field.nullable:
                marker = b"\xff" if value is None else b"\x01"
            return marker if value is None else marker + self._struct(field.fields, value, flexible)
        if kind in SIZES:
            return number_bytes(kind, value)
        if kind == "bool":
            return bytes([int(value)])
        if kind == "float64":
            return struct.pack(">d", value)
        if kind == "uuid":
            return bytes.fromhex(value)
        length = "int16" if kind == "string" else "int32"
        if value is None:
            return _length(-1, flexible, length)
        content = value.encode() if isinstance(value, str) else bytes(value)
        return _length(len(content), flexible, length) + content


def default_of(field: Field, version: int) -> Any:
    """Returns the value of a tagged field that is absent: a struct has the defaults of its own fields."""
    if field.is_array:
        return None if field.default is None else []
    if field.fields and field.default is not None:
        inner = (each for each in field.fields if version in each.versions)
        return {each.name: default_of(each, version) for each in inner}
    return field.default


def _length(count: int, flexible: bool, kind: str) -> bytes:
    return unsigned_varint(count + 1) if flexible else number_bytes(kind, count)


class Decoder:
    """Decodes one message in one version."""

    def __init__(self, message: Message, version: int, data: bytes) -> None:
        self._message = message
        self._version = version
        self._data = data
        self._at = 0

    def decode(self) -> Body:
        """Returns the body; `UndecodableError` unless all bytes belong to it."""
        body = self._struct(self._message.fields, self._version in self._message.flexible)
        if self._at != len(self._data):
            raise UndecodableError(f"{len(self._data) - self._at} bytes behind {self._message.name} v{self._version}")
        return body

    def _take(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise UndecodableError(
                f"{self._message.name} v{self._version} wants {size} bytes at {self._at}, "
                f"and the response has {len(self._data)}"
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def _number(self, kind: str) -> int:
        return int.from_bytes(self._take(SIZES[kind]), "big", signed=kind in SIGNED)

    def _varint(self) -> int:
        value = 0
        for index in range(VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise UndecodableError(f"{self._message.name}: a varint of more than {VARINT_BYTES_MAX} bytes")

    def _struct(self, fields: tuple[Field, ...], flexible: bool) -> Body:
        body: Body = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            if self._version not in field.versions:
                continue
            if field.tag is not None and self._version in field.tagged:
                tagged[field.tag] = field
                body[field.name] = default_of(field, self._version)
            else:
                body[field.name] = self._value(field, flexible)
        if flexible:
            self._tagged(tagged, body)
        return body

    def _tagged(self, known: Mapping[int, Field], body: Body) -> None:
        last = -1
        for _ in range(self._varint()):
            tag, size = self._varint(), self._varint()
            if tag <= last:
                raise UndecodableError(f"tag {tag} behind tag {last} in {self._message.name}")
            last, end = tag, self._at + size
            if tag not in known:
                body[f"tag {tag}"] = self._take(size)
                continue
            body[known[tag].name] = self._value(known[tag], True)
            if self._at != end:
                raise UndecodableError(f"tagged field {known[tag].name} has not the {size} bytes it says")

    def _value(self, field: Field, flexible: bool) -> Any:
        if field.flexible is not None:
            flexible = self._version in field.flexible
        if not field.is_array:
            return self._item(field, field.kind, flexible)
        count = self._count(flexible, "int32")
        if count < 0:
            return self._null(field)
        read: Callable[[], Any] = (
            (lambda: self._struct(field.fields, flexible))
            if field.fields
            else (lambda: self._item(field, field.item, flexible))
        )
        return [read() for _ in range(count)]

    def _count(self, flexible: bool, kind: str) -> int:
        return self._varint() - 1 if flexible else self._number(kind)

    def _null(self, field: Field) -> None:
        if self._version not in field.nullable:
            raise UndecodableError(f"null in {field.name} of {self._message.name} v{self._version}")

    def _item(self, field: Field, kind: str, flexible: bool) -> Any:
        if field.fields:
            if self._version in field.nullable and self._number("int8") < 0:
                return None
            return self._struct(field.fields, flexible)
        if kind in SIZES:
            return self._number(kind)
        if kind == "bool":
            return bool(self._take(1)[0])
        if kind == "float64":
            return struct.unpack(">d", self._take(8))[0]
        if kind == "uuid":
            return self._take(16).hex()
        count = self._count(flexible, "int16" if kind == "string" else "int32")
        if count < 0:
            return self._null(field)
        content = self._take(count)
        return content.decode() if kind == "string" else content


def request_bytes(name: str, version: int, body: Mapping[str, Any], correlation: int, client_id: str) -> bytes:
    """Encodes a request with its header, without the size in front."""
    message = messages()[f"{name}Request"]
    header_version = 2 if version in message.flexible else 1
    header = {
        "requestApiKey": message.key,
        "requestApiVersion": version,
        "correlationId": correlation,
        "clientId": client_id,
    }
    encoded = Encoder(messages()["RequestHeader"], header_version).encode(header)
    return encoded + Encoder(message, version).encode(body)


def response_body(name: str, version: int, frame: bytes) -> Body:
    """Decodes a response behind its correlation id."""
    message = messages()[f"{name}Response"]
    rest = frame[4:]
    if version in message.flexible and message.key != API_VERSIONS:
        if rest[:1] != b"\x00":
            raise UndecodableError(f"the header of {name} v{version} has tagged fields: {rest[:8].hex()}")
        rest = rest[1:]
    return Decoder(message, version, rest).decode()
