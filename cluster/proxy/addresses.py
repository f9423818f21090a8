"""Brokers' addresses in responses, replaced by the proxy's addresses.

Owns: `rewrite`, which copies the bytes of a response and replaces host and port wherever the schema of its version has
a broker with an id, a host and a port: Metadata, FindCoordinator, DescribeCluster, and the endpoints of new leaders in
Produce, Fetch, ShareFetch and ShareAcknowledge (KIP-951). The walk follows kio's schemas and builds no objects: every
other byte is copied as it is, unknown tagged fields and unknown error codes too.

Other hosts in responses are no addresses of brokers that a client connects to: those of ACLs, and the endpoints of
Kafka Streams applications (KIP-1071). `apis.py` keeps back what only controllers serve.

May fail: `WireError` for a response that does not decode.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import WireError
from ..listeners import Address
from ..wire import messages
from ..wire.decoding import field_shape, read_varint, skip_tags
from ..wire.primitives import compact_text, legacy_text, varint

AddressOf = Callable[[int, Address], "Address | None"]
"""`(node id, address in the response) -> the proxy's address`; None: the response keeps the address."""

Skip = Callable[[bytes, int], int]
"""`(frame, position) -> position after the field`."""
Walk = Callable[["Copy", int], int]
"""Like `Skip`; replaces addresses on the way."""

IDS = ("node_id", "broker_id")
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_FIXED_BYTES = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}


class Copy:
    """A response, or the value of a tagged field in it, that is copied with replaced parts."""

    __slots__ = ("address_of", "copied_to", "frame", "out")

    def __init__(self, frame: bytes, at: int, address_of: AddressOf) -> None:
        self.frame = frame
        self.address_of = address_of
        self.copied_to = at
        self.out = bytearray()

    def replace(self, begin: int, end: int, new: bytes | bytearray) -> None:
        """Copy the bytes up to `begin`, then `new` in place of the bytes up to `end`."""
        self.out += self.frame[self.copied_to : begin]
        self.out += new
        self.copied_to = end

    def finish(self, end: int) -> bytearray:
        """Copy the bytes up to `end`."""
        self.out += self.frame[self.copied_to : end]
        self.copied_to = end
        return self.out


def rewrite(api_key: int, version: int, frame: bytes, body_at: int, address_of: AddressOf) -> bytes | None:
    """Return the response with the proxy's addresses; None when it has no address to replace."""
    walk = walk_of(api_key, version)
    if walk is None:
        return None
    copy = Copy(frame, 0, address_of)
    try:
        end = walk(copy, body_at)
    except (WireError, struct.error, IndexError, ValueError) as error:
        raise WireError(f"the response of API key {api_key} v{version} does not decode: {error}") from error
    if end > len(frame):
        raise WireError(f"the response of API key {api_key} v{version} ends after {end} bytes of {len(frame)}")
    return bytes(copy.finish(len(frame))) if copy.copied_to else None


@cache
def walk_of(api_key: int, version: int) -> Walk | None:
    """Return the walk through a response; None for a response without brokers' addresses."""
    top = messages.response_type(api_key, version)
    return _walk_struct(top) if _has_addresses(top) else None


@cache
def _has_addresses(entity_type: type[Any]) -> bool:
    """Whether a message or struct has a broker's address, itself or in a field."""
    if _is_address(entity_type):
        return True
    inner = (field_shape(field.type)[0] for field in dataclasses.fields(entity_type))
    return any(_is_struct(each) and _has_addresses(each) for each in inner)


def _is_struct(declared: Any) -> bool:
    return dataclasses.is_dataclass(declared)


def _is_address(entity_type: Any) -> bool:
    names = {field.name for field in dataclasses.fields(entity_type)}
    return {"host", "port"} <= names and not names.isdisjoint(IDS)


@cache
def _walk_struct(entity_type: type[Any]) -> Walk:
    flexible: bool = entity_type.__flexible__
    steps: list[tuple[str, Skip | None, Walk | None]] = []
    tagged: dict[int, Walk] = {}
    for field in dataclasses.fields(entity_type):
        skip, walk = _field(field, flexible=flexible)
        if "tag" not in field.metadata:
            steps.append((field.name, skip, walk))
        elif walk is not None:
            tagged[field.metadata["tag"]] = walk
    own = _is_address(entity_type)

    def walk_struct(copy: Copy, at: int) -> int:
        node_id, host_at, host_end = -1, 0, 0
        frame = copy.frame
        for name, skip, walk in steps:
            begin = at
            at = skip(frame, at) if skip is not None else walk(copy, at)  # type: ignore[misc]
            if not own:
                continue
            if name in IDS:
                node_id = _INT32.unpack_from(frame, begin)[0]
            elif name == "host":
                host_at, host_end = begin, at
            elif name == "port":
                _replace_address(copy, node_id, host_at, host_end, begin, flexible=flexible)
        return _walk_tags(copy, at, tagged) if flexible else at

    return walk_struct


def _replace_address(copy: Copy, node_id: int, host_at: int, host_end: int, port_at: int, *, flexible: bool) -> None:
    """Replace the host, which ends where the port begins, and the port."""
    assert host_end == port_at, "a schema of Kafka has the port behind the host"
    frame = copy.frame
    size_bytes = _compact_start(frame, host_at) if flexible else host_at + 2
    old = Address(frame[size_bytes:host_end].decode(), _INT32.unpack_from(frame, port_at)[0])
    new = copy.address_of(node_id, old)
    if new is not None:
        host = compact_text(new.host) if flexible else legacy_text(new.host)
        copy.replace(host_at, port_at + 4, host + _INT32.pack(new.port))


def _compact_start(frame: bytes, at: int) -> int:
    return read_varint(frame, at)[1]


def _walk_tags(copy: Copy, at: int, tagged: dict[int, Walk]) -> int:
    frame = copy.frame
    if not tagged:
        return skip_tags(frame, at)
    count, at = read_varint(frame, at)
    for _ in range(count):
        tag, at = read_varint(frame, at)
        size_at = at
        size, at = read_varint(frame, at)
        end = at + size
        if end > len(frame):
            raise WireError(f"tagged field {tag} claims {size} bytes, more than the response has left")
        walk = tagged.get(tag)
        if walk is not None:
            value = Copy(frame, at, copy.address_of)
            if walk(value, at) != end:
                raise WireError(f"tagged field {tag} of {size} bytes has another length")
            if value.out:
                new = value.finish(end)
                copy.replace(size_at, end, varint(len(new)) + new)
        at = end
    return at


def _field(field: dataclasses.Field[Any], *, flexible: bool) -> tuple[Skip | None, Walk | None]:
    """Return how a field is passed: by a skip, or by a walk where it holds addresses."""
    inner, is_array, optional = field_shape(field.type)
    if _is_struct(inner) and _has_addresses(inner):
        walk = _walk_struct(inner)
        assert is_array or not optional, f"{field.name}: a nullable struct with addresses"
        return None, _walk_array(walk, flexible=flexible) if is_array else walk
    if _is_struct(inner):
        skip = _skip_struct(inner)
        if optional and not is_array and "tag" not in field.metadata:
            skip = _skip_nullable(skip)
    else:
        skip = _skip_primitive(field.metadata["kafka_type"], flexible=flexible)
    return (_skip_array(skip, flexible=flexible) if is_array else skip), None


def _count_at(frame: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Return the length of an array (-1: null), which cannot be more than the bytes that are left."""
    if flexible:
        count, at = read_varint(frame, at)
        count -= 1
    else:
        count, at = _INT32.unpack_from(frame, at)[0], at + 4
    if count > len(frame) - at:
        raise WireError(f"an array at byte {at} claims {count} elements of {len(frame) - at} bytes")
    return count, at


def _walk_array(walk: Walk, *, flexible: bool) -> Walk:
    def walk_array(copy: Copy, at: int) -> int:
        count, at = _count_at(copy.frame, at, flexible=flexible)
        for _ in range(count):
            at = walk(copy, at)
        return at

    return walk_array


def _skip_array(skip: Skip, *, flexible: bool) -> Skip:
    def skip_array(frame: bytes, at: int) -> int:
        count, at = _count_at(frame, at, flexible=flexible)
        for _ in range(count):
            at = skip(frame, at)
        return at

    return skip_array


def _skip_nullable(skip: Skip) -> Skip:
    """Pass a nullable struct: its first byte says whether the struct is present (KIP-893)."""
    return lambda frame, at: at + 1 if frame[at] >= 0x80 else skip(frame, at + 1)


@cache
def _skip_struct(entity_type: type[Any]) -> Skip:
    flexible: bool = entity_type.__flexible__
    found = [_field(f, flexible=flexible)[0] for f in dataclasses.fields(entity_type) if "tag" not in f.metadata]
    skips = [skip for skip in found if skip is not None]

    def skip_struct(frame: bytes, at: int) -> int:
        for skip in skips:
            at = skip(frame, at)
        return skip_tags(frame, at) if flexible else at

    return skip_struct


def _skip_primitive(kafka_type: str, *, flexible: bool) -> Skip:
    size = _FIXED_BYTES.get(kafka_type)
    if size is not None:
        return lambda _frame, at: at + size
    if flexible:
        return _skip_compact
    return _skip_short if kafka_type == "string" else _skip_long


def _skip_compact(frame: bytes, at: int) -> int:
    size, at = read_varint(frame, at)
    return at + max(size - 1, 0)


def _skip_short(frame: bytes, at: int) -> int:
    size: int = _INT16.unpack_from(frame, at)[0]
    return at + 2 + max(size, 0)


def _skip_long(frame: bytes, at: int) -> int:
    size: int = _INT32.unpack_from(frame, at)[0]
    return at + 4 + max(size, 0)
