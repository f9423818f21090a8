"""What is worked out before an append writes: offsets, continuity, which segment takes what.

Owns no state: functions from batches to rows. `Log` writes what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer
from ..wire.batches import (
    PlacedBatch,
    assign_offset,
    crc_matches,
    header_at,
    stamp_append_time,
)
from .results import AppendedBatch

PINNED_SLACK_BYTES = 64 * 1024
"""A kept slice of a frame keeps the whole frame alive; past this much waste it is copied instead."""


def leader_rows(
    data: bytearray, batches: Sequence[PlacedBatch], offset: int, leader_epoch: int
) -> list[AppendedBatch]:
    """Give the batches in `data` their offsets from `offset` on and the leader's epoch."""
    rows: list[AppendedBatch] = []
    for position, size, header in batches:
        assign_offset(data, position, offset, leader_epoch)
        last = offset + header.last_offset_delta
        rows.append(AppendedBatch(position, size, offset, last, header.max_timestamp, leader_epoch))
        offset = last + 1
    return rows


def stamped(data: bytearray, placed: PlacedBatch, append_time_ms: int) -> PlacedBatch:
    """The batch in `data` with LogAppendTime."""
    stamp_append_time(data, placed, append_time_ms)
    return placed._replace(header=header_at(data, placed.position))


def follower_rows(
    view: memoryview, batches: Sequence[PlacedBatch], *, end: int, gaps_allowed: bool, log: str
) -> list[AppendedBatch]:
    """Check that a leader's batches are whole and continue a log that ends at `end`."""
    rows: list[AppendedBatch] = []
    for placed in batches:
        position, size, header = placed
        base = header.base_offset
        if base != end and (base < end or not gaps_allowed):
            raise StorageError(
                f"{log}: the leader sent offset {base}, this log goes on at {end}; "
                "truncate before fetching"
            )
        if header.magic != 2 or header.last_offset_delta < 0 or not crc_matches(view, placed):
            raise KafkaError(
                ErrorCode.corrupt_message, f"{log}: the leader's batch {base} has a wrong CRC"
            )
        last = header.last_offset
        rows.append(
            AppendedBatch(position, size, base, last, header.max_timestamp, header.leader_epoch)
        )
        end = last + 1
    return rows


def fitting(rows: Sequence[AppendedBatch], start: int, active_size: int, bytes_max: int) -> int:
    """How far `rows` from `start` on go into one segment: the active one, or the next.

    At least one row; the active segment has `active_size` bytes and may have `bytes_max`.
    """
    begin = rows[start].position
    if active_size + rows[-1].position + rows[-1].size - begin <= bytes_max:
        return len(rows)
    room = bytes_max - active_size
    if rows[start].size > room:  # this run begins a segment
        room = bytes_max
    stop = start + 1
    while stop < len(rows) and rows[stop].position + rows[stop].size - begin <= room:
        stop += 1
    return stop


def unpinned(records: Buffer) -> memoryview:
    """A view of `records` that may be kept: a small slice of a large frame is copied."""
    view = memoryview(records)
    whole = view.obj
    if isinstance(whole, bytes | bytearray) and len(whole) > 2 * len(view) + PINNED_SLACK_BYTES:
        return memoryview(bytes(view))
    return view
