"""Field encodings that the hand-written codecs of Produce and Fetch share.

Owns: compact and legacy strings, varints, topics by name or by id, and the tagged fields of KIP-951 (the current
leader and its endpoint).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import WireError
from .decoding import read_varint
from .texts import text_of_bytes
from .topic_ids import UUID

__all__ = [
    "NodeEndpoint",
    "compact_text",
    "leader_tag",
    "legacy_text",
    "node_endpoints_tag",
    "read_topic",
    "topic_bytes",
    "topic_of",
    "varint",
]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LEADER = struct.Struct(">iib")
_SMALL = tuple(bytes((value,)) for value in range(0x80))


class NodeEndpoint(NamedTuple):
    """The client endpoint of a leader that a response names (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def varint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    if value < 0x80:  # seven bits
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:  # seven bits
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_text(text: str | None) -> bytes:
    """Encodes a nullable compact string."""
    if text is None:
        return b"\0"
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def legacy_text(text: str | None) -> bytes:
    """Encodes a nullable string with a 16-bit length."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def topic_bytes(topic: str | UUID, *, flexible: bool, by_id: bool) -> bytes:
    """Encodes a topic by its id or by its name, as the version requires."""
    if by_id:
        assert isinstance(topic, UUID), f"this version names topics by id, not {topic!r}"
        return topic.bytes
    assert isinstance(topic, str), f"this version names topics by name, not {topic!r}"
    return compact_text(topic) if flexible else legacy_text(topic)


@lru_cache(1024)
def topic_of(raw: bytes) -> UUID:
    """Returns the topic id in 16 bytes; cached, because creating a UUID costs more than the rest of a row."""
    return UUID(bytes=raw)


def present(count: int) -> int:
    """Returns the length of an array that may not be null; WireError for null (-1) and other negative lengths."""
    if count < 0:
        raise WireError(f"array length {count} for an array that must not be null")
    return count


def read_topic(frame: bytes, at: int, *, by_id: bool) -> tuple[str | UUID, int]:
    """Decodes a topic of a flexible version; returns the topic and the position after it."""
    if by_id:
        return topic_of(frame[at : at + 16]), at + 16
    size, at = read_varint(frame, at)
    if size == 0:
        raise WireError(f"the topic name at byte {at} is null; a topic needs a name")
    end = at + size - 1
    return text_of_bytes(frame[at:end]), end


def leader_tag(tag: int, leader_id: int, leader_epoch: int) -> bytes:
    """Encodes the tagged field `current_leader`."""
    return bytes((tag, _LEADER.size)) + _LEADER.pack(leader_id, leader_epoch, 0)


def node_endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encodes the tag section at the end of a response: `node_endpoints` at tag 0 when there are any."""
    if not endpoints:
        return b"\0"
    out = [varint(len(endpoints) + 1)]
    for row in endpoints:
        out += (_INT32.pack(row.node_id), compact_text(row.host), _INT32.pack(row.port))
        out += (compact_text(row.rack), b"\0")
    value = b"".join(out)
    return b"\1\0" + varint(len(value)) + value
