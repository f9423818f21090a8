"""What is worked out before an append writes: offsets, continuity, which segment takes what.

Owns no state: functions from batches to rows. `Log` writes what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer
from ..ids import Offset, TopicPartition
from ..wire.batches import (
    HEADER_SIZE,
    PlacedBatch,
    assign_offset,
    crc_matches,
    header_at,
    placed_header,
    stamp_append_time,
)
from .producer_entry import BatchMetadata
from .results import AppendedBatch, AppendInfo
from .sparse_index import RELATIVE_OFFSET_MAX

PINNED_SLACK_BYTES = 64 * 1024
"""A kept slice of a frame keeps the whole frame alive; past this much waste it is copied instead."""

_OWNED = (bytes, bytearray)

SHARED_BYTES_LEAST = 8 * 1024
"""A smaller batch is copied: that costs less than to have it in two parts, now and at each fetch."""


Placed = tuple[tuple[Buffer, ...], list[AppendedBatch], Sequence[PlacedBatch]]
"""What a leader is about to append: the bytes, for one write (those of several batches in one part); what they
are; the batches as they will be read, with the append time where the topic wants that."""


def place(
    records: Buffer,
    batches: Sequence[PlacedBatch],
    offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> Placed:
    """Give the batches in `records` their offsets from `offset` on, the leader's epoch, and, unless -1, the time.

    `records` stay as they are. One large batch is not copied (B12): a new header goes before a view of the rest.
    """
    if append_time_ms < 0 and len(records) >= SHARED_BYTES_LEAST and len(batches) == 1:
        rest = memoryview(records)[HEADER_SIZE:]
        if may_share(rest):
            _, size, header = batches[0]
            last = offset + header.last_offset_delta
            row = AppendedBatch(0, size, offset, last, header.max_timestamp, leader_epoch)
            return (placed_header(records, header, offset, leader_epoch), rest), [row], batches
    data = bytearray(records)
    if append_time_ms >= 0:
        batches = [stamped(data, placed, append_time_ms) for placed in batches]
    return (memoryview(data),), leader_rows(data, batches, offset, leader_epoch), batches


def may_share(rest: memoryview) -> bool:
    """True when a view of a request may be kept instead of a copy: nobody changes it, and it is nearly all of it.

    What a tail counts and what it keeps alive then differ by an eighth at most, however many partitions
    a request has.
    """
    whole = rest.obj
    return isinstance(whole, bytes) and len(whole) <= len(rest) + len(rest) // 8


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
    view: memoryview,
    batches: Sequence[PlacedBatch],
    *,
    end: int,
    gaps_allowed: bool,
    log: TopicPartition,
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

    At least one row; the active segment has `active_size` bytes and may have `bytes_max`. Rows that
    compaction left 2^31 offsets apart never share one.
    """
    begin, last = rows[start].position, rows[-1]
    far = rows[start].base_offset + RELATIVE_OFFSET_MAX
    room = bytes_max - active_size
    if last.position + last.size - begin <= room and last.last_offset <= far:
        return len(rows)
    if rows[start].size > room:  # this run begins a segment
        room = bytes_max
    stop = start + 1
    while stop < len(rows) and rows[stop].position + rows[stop].size - begin <= room:
        if rows[stop].last_offset > far:
            break
        stop += 1
    return stop


def duplicate_info(batch: BatchMetadata, log_start: Offset, *, stamped: bool) -> AppendInfo:
    """What the first append of a batch did that a client sends again."""
    return AppendInfo(
        Offset(batch.first_offset),
        Offset(batch.last_offset),
        batch.timestamp if stamped else -1,
        log_start,
        True,
        batch.last_offset - batch.first_offset + 1,
        0,
    )


def unpinned(records: Buffer) -> memoryview:
    """A view of `records` that may be kept: a small slice of a large frame is copied."""
    view = memoryview(records)
    whole = view.obj
    if isinstance(whole, _OWNED) and len(whole) > 2 * len(view) + PINNED_SLACK_BYTES:
        return memoryview(bytes(view))
    return view
