"""Decodes kio entities from untrusted bytes.

Owns: `reader(type)`, which builds a decoder once for each class from the class's field metadata. kio's own reader
allocates as many elements as an array claims to have, and an absurd count aborts the whole process. The
specification (A6) requires that malformed bytes close only their own connection. Therefore a decoder here refuses
every count that is larger than the number of bytes left in the buffer: an element takes at least one byte.

Invariants: a decoder reads only inside the buffer; its allocations are bounded by the size of the buffer.
Fails with `WireError` only, whatever the bytes are. Unknown tagged fields are skipped (KIP-482).
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from ..errors import ErrorCode, WireError
from ..host.seam import Buffer
from .kio_imports import SerialError, read_datetime_i64, read_nullable_datetime_i64
from .texts import text_of_bytes
from .topic_ids import UUID

__all__ = ["EPOCH", "WireReader", "field_shape", "neutral", "read_varint", "reader", "skip_tags"]

WireReader = Callable[[Buffer, int], tuple[Any, int]]
"""A decoder: `(buffer, position) -> (value, position after it)`."""

_VARINT_BYTES_MAX = 5
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_varint(buffer: Buffer, at: int) -> tuple[int, int]:
    """Returns an unsigned varint of up to 32 bits and the position after it; IndexError at the buffer's end."""
    byte = buffer[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift, end = byte & 0x7F, 7, at + _VARINT_BYTES_MAX
    while True:
        at += 1
        if at >= end:
            raise WireError(f"the varint that reaches byte {at} is longer than {_VARINT_BYTES_MAX} bytes")
        byte = buffer[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7


def skip_tags(buffer: Buffer, at: int) -> int:
    """Returns the position after a section of tagged fields, without decoding any of them."""
    count, at = read_varint(buffer, at)
    for _ in range(count):
        _, at = read_varint(buffer, at)
        size, at = read_varint(buffer, at)
        at += size
        if at > len(buffer):
            raise WireError(f"a tagged field claims {size} bytes, more than the message has left")
    return at


def _fixed(layout: str) -> WireReader:
    packed = struct.Struct(layout)
    size, unpack = packed.size, packed.unpack_from

    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        return unpack(buffer, at)[0], at + size

    return read


def _read_uuid(buffer: Buffer, at: int) -> tuple[UUID | None, int]:
    raw = _slice(buffer, at, 16)
    return (UUID(bytes=raw) if any(raw) else None), at + 16


def _read_error(buffer: Buffer, at: int) -> tuple[ErrorCode, int]:
    return ErrorCode(_INT16.unpack_from(buffer, at)[0]), at + 2


def _read_milliseconds(layout: str) -> WireReader:
    read_number = _fixed(layout)

    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        number, at = read_number(buffer, at)
        try:
            return timedelta(milliseconds=number), at
        except OverflowError:  # more than 2.7 million years: no deadline depends on how much more
            return timedelta.max if number > 0 else timedelta.min, at

    return read


_read_int64 = _fixed(">q")
EPOCH = read_datetime_i64(bytes(8), 0)[0]
"""The wall clock time 0."""


def _read_time(buffer: Buffer, at: int) -> tuple[Any, int]:
    number, end = _read_int64(buffer, at)
    return EPOCH + timedelta(milliseconds=number), end


def _read_nullable_time(buffer: Buffer, at: int) -> tuple[Any, int]:
    value, size = read_nullable_datetime_i64(buffer, at)
    return value, at + size


def _slice(buffer: Buffer, at: int, size: int) -> bytes:
    end = at + size
    if end > len(buffer):
        raise WireError(f"a field at byte {at} claims {size} bytes, but the message has {len(buffer)} bytes in all")
    return bytes(buffer[at:end])


def _compact_size(buffer: Buffer, at: int) -> tuple[int, int]:
    size, at = read_varint(buffer, at)
    return size - 1, at


def _short_size(buffer: Buffer, at: int) -> tuple[int, int]:
    return _INT16.unpack_from(buffer, at)[0], at + 2


def _long_size(buffer: Buffer, at: int) -> tuple[int, int]:
    return _INT32.unpack_from(buffer, at)[0], at + 4


def _blob(read_size: WireReader, *, optional: bool, convert: Callable[[bytes], Any] | None) -> WireReader:
    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        size, at = read_size(buffer, at)
        if size < 0:
            if not optional or size != -1:
                raise WireError(f"length {size} before byte {at} for a value that must not be null")
            return None, at
        raw = _slice(buffer, at, size)
        return (raw if convert is None else convert(raw)), at + size

    return read


def _array(read_size: WireReader, read_item: WireReader, *, optional: bool) -> WireReader:
    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        count, at = read_size(buffer, at)
        if count < 0:
            if not optional or count != -1:
                raise WireError(f"array length {count} before byte {at} for an array that must not be null")
            return None, at
        if count > len(buffer) - at:
            raise WireError(
                f"an array at byte {at} claims {count} elements, but only {len(buffer) - at} bytes are left"
            )
        items: list[Any] = []
        for _ in range(count):
            item, at = read_item(buffer, at)
            items.append(item)
        return tuple(items), at

    return read


def _nullable_struct(read_struct: WireReader) -> WireReader:
    """Decodes a nullable struct: its first byte says whether the struct is present (KIP-893)."""

    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        marker = buffer[at]
        return (None, at + 1) if marker >= 0x80 else read_struct(buffer, at + 1)

    return read


_PRIMITIVES: dict[str, WireReader] = {
    "int8": _fixed(">b"),
    "int16": _fixed(">h"),
    "int32": _fixed(">i"),
    "int64": _fixed(">q"),
    "uint8": _fixed(">B"),
    "uint16": _fixed(">H"),
    "uint32": _fixed(">I"),
    "uint64": _fixed(">Q"),
    "float64": _fixed(">d"),
    "bool": _fixed(">?"),
    "uuid": _read_uuid,
    "error_code": _read_error,
    "timedelta_i32": _read_milliseconds(">i"),
    "timedelta_i64": _read_milliseconds(">q"),
}


def _primitive(kafka_type: str, *, flexible: bool, optional: bool) -> WireReader:
    if kafka_type == "string":
        size = _compact_size if flexible else _short_size
        return _blob(size, optional=optional, convert=text_of_bytes)
    if kafka_type in ("bytes", "records"):
        size = _compact_size if flexible else _long_size
        return _blob(size, optional=optional, convert=None)
    if kafka_type == "datetime_i64":
        return _read_nullable_time if optional else _read_time
    return _PRIMITIVES[kafka_type]


def field_shape(declared: Any) -> tuple[Any, bool, bool]:
    """Returns `(inner type, is an array, may be null)` for a field's type as kio declares it."""
    optional = False
    if get_origin(declared) is UnionType:
        declared = next(part for part in get_args(declared) if part is not NoneType)
        optional = True
    if get_origin(declared) is tuple:
        return get_args(declared)[0], True, optional
    return declared, False, optional


def _field_reader(field: dataclasses.Field[Any], *, flexible: bool) -> WireReader:
    inner, is_array, optional = field_shape(field.type)
    if "tag" in field.metadata and not is_array:
        optional = False  # a missing tag stands for null, so the encoded value is never null
    if dataclasses.is_dataclass(inner):
        struct_type: Any = inner
        read_item = _entity(struct_type)
        if optional and not is_array:
            return _nullable_struct(read_item)
    else:
        kafka_type: str = field.metadata["kafka_type"]
        read_item = _primitive(kafka_type, flexible=flexible, optional=optional and not is_array)
    if not is_array:
        return read_item
    return _array(_compact_size if flexible else _long_size, read_item, optional=optional)


@cache
def _entity(entity_type: Any) -> WireReader:
    flexible: bool = entity_type.__flexible__
    plain: list[tuple[str, WireReader]] = []
    tagged: dict[int, tuple[str, WireReader]] = {}
    absent: dict[str, Any] = {}
    for field in dataclasses.fields(entity_type):
        read_field = _field_reader(field, flexible=flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = (field.name, read_field)
            if field.default is dataclasses.MISSING:
                absent[field.name] = neutral(field)
        else:
            plain.append((field.name, read_field))

    def read(buffer: Buffer, at: int) -> tuple[Any, int]:
        values = absent.copy() if absent else {}
        for name, read_field in plain:
            values[name], at = read_field(buffer, at)
        if flexible:
            at = _read_tags(buffer, at, tagged, values)
        return entity_type(**values), at

    return read


def _read_tags(buffer: Buffer, at: int, tagged: dict[int, tuple[str, WireReader]], values: dict[str, Any]) -> int:
    if buffer[at] == 0:
        return at + 1
    count, at = read_varint(buffer, at)
    for _ in range(count):
        tag, at = read_varint(buffer, at)
        size, at = read_varint(buffer, at)
        if size > len(buffer) - at:
            raise WireError(f"tagged field {tag} claims {size} bytes, more than the message has left")
        if tag in tagged:
            name, read_field = tagged[tag]
            values[name], _ = read_field(buffer, at)
        at += size
    return at


_NEUTRAL: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "float64": 0.0,
}


def neutral(field: dataclasses.Field[Any]) -> Any:
    """Returns the protocol's default for a field without a declared default.

    That is null where the field is nullable, else an empty array or string, zero, or a struct of such fields.
    """
    inner, is_array, optional = field_shape(field.type)
    if optional:
        return None
    if is_array:
        return ()
    if dataclasses.is_dataclass(inner):
        fields = dataclasses.fields(inner)
        build: Any = inner
        return build(**{f.name: neutral(f) for f in fields if f.default is dataclasses.MISSING})
    kafka_type: str = field.metadata["kafka_type"]
    if kafka_type == "datetime_i64":
        return read_datetime_i64(bytes(8), 0)[0]
    return _NEUTRAL.get(kafka_type, 0)


@cache
def reader(entity_type: Any) -> WireReader:
    """Returns the decoder of a whole message; it raises `WireError` for bytes that do not decode."""
    read = _entity(entity_type)
    name: str = entity_type.__name__

    def read_checked(buffer: Buffer, at: int) -> tuple[Any, int]:
        try:
            return read(buffer, at)
        except (struct.error, IndexError, ValueError, OverflowError, SerialError) as error:
            raise WireError(f"{name} v{entity_type.__version__} does not decode: {error}") from error

    return read_checked
