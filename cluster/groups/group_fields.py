"""What records of consumer, share and streams groups have in common: keys, versions of values, and partitions.

May fail: RecordFormatError, as `coordinators/flexible_fields.py` says, and for a value of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ..coordinators import RecordFormatError
from ..coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ..host.seam import Buffer
from ..wire.topic_ids import UUID

T = TypeVar("T")


def encode_key(kind: int, group_id: str, name: str | None) -> bytes:
    """The key of a record of type `kind`; `name`: its member id or regular expression, None where it has none."""
    out = FlexibleWriter(kind)
    out.classic_string(group_id)
    if name is not None:
        out.classic_string(name)
    return out.bytes()


def write_partitions(out: FlexibleWriter, partitions: Mapping[UUID, frozenset[int]]) -> None:
    """Partitions by topic id, sorted."""
    out.size(len(partitions))
    for topic_id, numbers in sorted(partitions.items()):
        out.raw(topic_id.bytes)
        out.size(len(numbers))
        for number in sorted(numbers):
            out.i32(number)
        out.tags()


def read_value(value: Buffer | None, decode: Callable[[FlexibleReader], T]) -> T | None:
    """The value of a record of version 0; None for a tombstone."""
    if value is None:
        return None
    reader = FlexibleReader(value)
    version = reader.i16()
    if version != 0:
        raise RecordFormatError(f"value version {version}; 0 is known")
    return decode(reader)


def read_partitions(reader: FlexibleReader) -> dict[UUID, frozenset[int]]:
    """The inverse of `write_partitions`; a topic without partitions is left out."""
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.size()):
        topic_id = UUID(bytes=reader.raw(16))
        numbers = frozenset(reader.i32() for _ in range(reader.size()))
        reader.tags()
        if numbers:
            found[topic_id] = numbers
    return found
