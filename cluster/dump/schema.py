"""Decodes messages by their schema: any of Kafka's generated record types, to the JSON that Kafka prints.

Owns: the schema types (`Struct`, `Field`, `Many`), the decoder, and the errors of Kafka's generated decoders
(`MessageError` has their exact text, because the dump prints it).

Rules of the generated converters: fields in their declared order, names in camel case; a field that this version
lacks is absent; a tagged field with its default value is absent; bytes are base64, ids base64url.
Source: Kafka's generator `MessageDataGenerator`, `JsonConverterGenerator`, `ByteBufferAccessor`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import HarrowError
from .java_text import Json, text

NO_VERSION = 32767
"""A number above every version, for a struct that is never flexible and a field that was never removed."""


class MessageError(HarrowError):
    """The bytes do not decode with the schema; the text is that of Kafka's decoder."""


@dataclass(frozen=True, slots=True)
class Many:
    """The type of an array of `item`."""

    item: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a struct, present in versions `since` to `until`.

    With `tag` it is a tagged field, which is absent when its value is `default`.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NO_VERSION
    nullable: bool = False
    tag: int | None = None
    default: Json = None


@dataclass(frozen=True, slots=True)
class Struct:
    """A message, or a struct inside a message."""

    name: str
    fields: tuple[Field, ...]
    newest: int = 0
    flexible: int = NO_VERSION


Kind = str | Many | Struct
"""int8, int16, int32, int64, uint16, string, bytes, uuid; an array; a struct."""

_NUMBERS = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
}
_VARINT_BYTES_MAX = 5
_UUID_SIZE = 16


def field(
    name: str,
    kind: Kind,
    *,
    since: int = 0,
    until: int = NO_VERSION,
    nullable: bool = False,
    tag: int | None = None,
    default: Json = None,
) -> Field:
    """Returns a `Field`; takes name and type as positional arguments."""
    return Field(name=name, kind=kind, since=since, until=until, nullable=nullable, tag=tag, default=default)


class ByteCursor:
    """Decodes values from bytes one after the other; MessageError past the end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def remaining(self) -> int:
        """Number of bytes that are not decoded yet."""
        return len(self._data) - self._at

    def number(self, kind: str) -> int:
        """Decodes a number of a fixed size."""
        form = _NUMBERS[kind]
        if self.remaining < form.size:
            raise MessageError("null")  # Java prints null: a BufferUnderflowException has no message
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(value)

    def varint(self) -> int:
        """Decodes an unsigned varint of at most five bytes."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            if not self.remaining:
                raise MessageError("null")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise MessageError(
            "Varint is too long, the most significant bit in the 5th byte is set, "
            f"converted value: {value & 0xFFFFFFFF:x}"
        )

    def take(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        if size > self.remaining:
            raise MessageError(f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken


class MessageDecoder:
    """Decodes a message in one version."""

    __slots__ = ("_data", "_newest", "_version")

    def __init__(self, data: ByteCursor, version: int) -> None:
        self._data = data
        self._newest = NO_VERSION
        self._version = version

    def read(self, message: Struct) -> dict[str, Json]:
        """Decodes the message to values for `json_text`."""
        self._newest = message.newest
        return self._struct(message, flexible=self._version >= message.flexible)

    def _struct(self, message: Struct, *, flexible: bool) -> dict[str, Json]:
        present = [f for f in message.fields if f.since <= self._version <= f.until]
        values: dict[str, Json] = {}
        tagged = {f.tag: f for f in present if f.tag is not None}
        for plain in present:
            if plain.tag is None:
                values[plain.name] = self._value(plain, plain.kind, flexible=flexible)
        if flexible:
            for _ in range(self._data.varint()):
                tag, size = self._data.varint(), self._data.varint()
                known = tagged.get(tag)
                if known is None:
                    self._data.take(size)
                    continue
                value = self._value(known, known.kind, flexible=flexible)
                if value != known.default:
                    values[known.name] = value
        return {f.name: values[f.name] for f in present if f.name in values}

    def _value(self, declared: Field, kind: Kind, *, flexible: bool) -> Json:
        if isinstance(kind, Many):
            return self._many(declared, kind, flexible=flexible)
        if isinstance(kind, Struct):
            if declared.nullable and self._is_null(declared):
                return None
            if self._version > self._newest:  # Kafka checks this in nested structs only
                raise MessageError(f"Can't read version {self._version} of {kind.name}")
            return self._struct(kind, flexible=flexible)
        if kind in _NUMBERS:
            return self._data.number(kind)
        if kind == "uuid":
            return base64.urlsafe_b64encode(self._data.take(_UUID_SIZE)).rstrip(b"=").decode()
        return self._string(declared, kind, flexible=flexible)

    def _is_null(self, declared: Field) -> bool:
        """Decodes the marker at the front of a nullable struct: a byte, or a varint in a tagged field."""
        if declared.tag is None:
            return self._data.number("int8") < 0
        return self._data.varint() == 0

    def _string(self, declared: Field, kind: str, *, flexible: bool) -> Json:
        length_of = "int16" if kind == "string" else "int32"
        size = self._data.varint() - 1 if flexible else self._data.number(length_of)
        if size < 0:
            return self._null(declared)
        content = self._data.take(size)
        return text(content) if kind == "string" else content

    def _many(self, declared: Field, kind: Many, *, flexible: bool) -> Json:
        count = self._data.varint() - 1 if flexible else self._data.number("int32")
        if count < 0:
            return self._null(declared)
        if count > self._data.remaining:
            raise MessageError(
                f"Tried to allocate a collection of size {count}, but there are only "
                f"{self._data.remaining} bytes remaining."
            )
        item = field(f"{declared.name} element", kind.item)
        read: Callable[[], Json] = lambda: self._value(item, kind.item, flexible=flexible)  # noqa: E731 - one use
        return [read() for _ in range(count)]

    @staticmethod
    def _null(declared: Field) -> None:
        if not declared.nullable:
            raise MessageError(f"non-nullable field {declared.name} was serialized as null")


def read_message(message: Struct, data: ByteCursor, version: int) -> dict[str, Json]:
    """Decodes `message` from the bytes after its version; MessageError with Kafka's text."""
    return MessageDecoder(data, version).read(message)
