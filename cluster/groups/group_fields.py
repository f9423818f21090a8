"""What records of consumer, share and streams groups have in common: keys, versions of values, and partitions.

May fail: RecordFormatError, as `coordinators/flexible_fields.py` says, and for a value of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ..coordinators import RecordFormatError
from ..coordinators.flexible_fields import FlexibleReader, FlexibleWriter
from ..host.seam import Buffer
from ..wire.topic_ids import UUID

T = TypeVar("T")
EPOCHS_TAG = 0
"""Behind the partitions of a topic that a member has: the epoch in which it got each of them."""


def encode_key(kind: int, group_id: str, name: str | None) -> bytes:
    """The key of a record of type `kind`; `name`: its member id or regular expression, None where it has none."""
    out = FlexibleWriter(kind)
    out.classic_string(group_id)
    if name is not None:
        out.classic_string(name)
    return out.bytes()


def write_partitions(
    out: FlexibleWriter,
    partitions: Mapping[UUID, frozenset[int]],
    epochs: Mapping[tuple[UUID, int], int] | None = None,
) -> None:
    """Partitions by topic id, sorted; with the epoch of each one where there are `epochs`."""
    out.size(len(partitions))
    for topic_id, numbers in sorted(partitions.items()):
        out.raw(topic_id.bytes)
        out.size(len(numbers))
        for number in sorted(numbers):
            out.i32(number)
        out.tags([] if epochs is None else [(EPOCHS_TAG, _epochs_of(epochs, topic_id, numbers))])


def _epochs_of(epochs: Mapping[tuple[UUID, int], int], topic_id: UUID, numbers: frozenset[int]) -> bytes:
    out = FlexibleWriter()
    out.size(len(numbers))
    for number in sorted(numbers):
        out.i32(epochs[topic_id, number])
    return out.bytes()


def read_value(value: Buffer | None, decode: Callable[[FlexibleReader], T]) -> T | None:
    """The value of a record of version 0; None for a tombstone."""
    if value is None:
        return None
    reader = FlexibleReader(value)
    version = reader.i16()
    if version != 0:
        raise RecordFormatError(f"value version {version}; 0 is known")
    return decode(reader)


def read_target_epoch(reader: FlexibleReader) -> tuple[int, int]:
    """The assignment epoch, and when the target was computed (tag 0; Kafka before 4.3 writes none)."""
    epoch, tags = reader.i32(), reader.tags()
    return epoch, int.from_bytes(tags.get(0, b"\0"), signed=True)


def write_target_epoch(out: FlexibleWriter, epoch: int, computed_ms: int) -> None:
    """The inverse of `read_target_epoch`."""
    out.i32(epoch)
    out.tags([(0, computed_ms.to_bytes(8, signed=True))] if computed_ms else [])


def read_partitions(
    reader: FlexibleReader, epochs: dict[tuple[UUID, int], int] | None = None, otherwise: int = 0
) -> dict[UUID, frozenset[int]]:
    """The inverse of `write_partitions`; a topic without partitions is left out.

    Adds the epoch of each partition to `epochs`; `otherwise` where the record does not say one for each.
    """
    found: dict[UUID, frozenset[int]] = {}
    for _ in range(reader.size()):
        topic_id = UUID(bytes=reader.raw(16))
        numbers = [reader.i32() for _ in range(reader.size())]
        tagged = reader.tags().get(EPOCHS_TAG)
        if epochs is not None:
            epochs.update(_read_epochs(topic_id, numbers, tagged, otherwise))
        if numbers:
            found[topic_id] = frozenset(numbers)
    return found


def _read_epochs(
    topic_id: UUID, numbers: list[int], tagged: bytes | None, otherwise: int
) -> Iterable[tuple[tuple[UUID, int], int]]:
    known: list[int] = []
    if tagged is not None:
        reader = FlexibleReader(tagged)
        known = [reader.i32() for _ in range(reader.size())]
    if len(known) != len(numbers):
        known = [otherwise] * len(numbers)
    return [((topic_id, number), epoch) for number, epoch in zip(numbers, known, strict=True)]
