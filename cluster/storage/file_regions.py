"""Ranges of a segment's file that are sent without being read (B12).

Owns: `read_to_send`: the same batches as `LogSegment.read`, as a region of the file. The end of the last whole batch
within the limits is found through the offset index, by position and by offset, and from there by walking headers: two
or three small reads, for a range of any size. An index entry is used only if a batch of this segment begins at its
position.

Source: Kafka's `LogSegment.read`, `FileRecords.slice` (which leaves half a batch at the end; here batches are whole).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from ..host.seam import Part
from ..ids import Offset
from ..wire.batches import HEADER_SIZE, LOG_OVERHEAD, SPAN
from .results import FetchData
from .segment import LogSegment

REGION_BYTES_LEAST = 64 * 1024
"""A smaller read copies the bytes: that costs no more than to find the end of a region."""
_WALK_BYTES = 16 * 1024
_span = SPAN.unpack_from


class DataToSend(NamedTuple):
    """Whole batches for one response: buffers in memory, or regions of a file that `sendfile` sends."""

    parts: list[Part]
    size: int
    first_offset: Offset


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class SegmentRead(Protocol[T_co]):
    """A way to read a segment: `LogSegment.read` or `read_to_send`."""

    def __call__(
        self, segment: LogSegment, offset: int, max_bytes: int, upper: int, /, *, at_least_one: bool
    ) -> T_co | None:
        """Whole batches, or None when all of the segment lies before `offset`."""
        ...


def read_to_send(
    segment: LogSegment, offset: int, max_bytes: int, upper: int, *, at_least_one: bool
) -> DataToSend | FetchData | None:
    """The batches that `LogSegment.read` returns, as a region of the file where that is cheaper (B12)."""
    if max_bytes < REGION_BYTES_LEAST:
        return segment.read(offset, max_bytes, upper, at_least_one=at_least_one)
    found = segment.find(offset)
    if found is None:
        return None
    position, base, size = found
    if base >= upper or (size > max_bytes and not at_least_one):
        return DataToSend([], 0, Offset(offset))
    limit = min(position + max(max_bytes, size), segment.size)
    end = _end(segment, position + size, limit, upper)
    return DataToSend([segment.file.region(position, end - position)], end - position, Offset(base))


def _end(segment: LogSegment, start: int, limit: int, upper: int) -> int:
    """The last end of a batch in [start, limit] such that all batches before it are based below `upper`.

    `start` is the end of a batch.
    """
    at = segment.border_before(limit, upper, start)
    while at < limit:
        data = segment.file.read_at(at, min(_WALK_BYTES, segment.size - at))
        here = 0
        while here + HEADER_SIZE <= len(data):
            base, length, _ = _span(data, here)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or base >= upper or at + size > limit:
                return at
            at += size
            here += size
        if here == 0:
            break  # less than a header is left
    return at
