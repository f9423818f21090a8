"""What is worked out before an append writes: offsets, continuity, which segment takes what.

Owns no state: functions from batches to rows. `Log` writes what they say.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer
from ..ids import Offset, TopicPartition
from ..wire.batch_header import LOG_APPEND_TIME, new_row
from ..wire.batches import (
    HEADER_SIZE,
    BatchHeader,
    PlacedBatch,
    assign_offset,
    crc_matches,
    placed_header,
    stamp,
)
from .indexes.sparse_index import RELATIVE_OFFSET_MAX
from .producers.producer_entry import BatchMetadata
from .results import AppendedBatch, AppendInfo

PINNED_SLACK_BYTES = 64 * 1024
"""A kept slice of a frame keeps the whole frame alive; past this much waste it is copied instead."""

_OWNED = (bytes, bytearray)

SHARED_BYTES_LEAST = 8 * 1024
"""A smaller batch is copied: that costs less than to have it in two parts, now and at each fetch."""


def place(
    records: Buffer, header: BatchHeader, offset: int, leader_epoch: int
) -> tuple[Buffer, ...]:
    """The batch `records` as the log has it, for one write: at `offset`, under the leader's epoch.

    `records` stay as they are. A large batch is not copied (B12): a new header goes before a view of the rest.
    """
    view = memoryview(records)
    head = placed_header(view, header.length, offset, leader_epoch)
    rest = view[HEADER_SIZE:]
    if len(rest) >= SHARED_BYTES_LEAST and may_share(rest):
        return head, rest
    return (head + rest,)


def place_stamped(
    records: Buffer, header: BatchHeader, offset: int, leader_epoch: int, append_time_ms: int
) -> tuple[tuple[Buffer, ...], BatchHeader]:
    """The same of a copy that has the log's time, or with -1 the producer's own; and how its header reads then."""
    data = bytearray(records)
    assign_offset(data, offset, leader_epoch)
    if append_time_ms >= 0:
        changed = stamp(data, header.attributes | LOG_APPEND_TIME, append_time_ms)
    else:
        changed = stamp(data, header.attributes & ~LOG_APPEND_TIME, header.max_timestamp)
    return (memoryview(data),), changed


def may_share(rest: memoryview) -> bool:
    """True when a view of a request may be kept instead of a copy: nobody changes it, and it is nearly all of it.

    What a tail counts and what it keeps alive then differ by an eighth at most, however many partitions
    a request has.
    """
    whole = rest.obj
    return isinstance(whole, bytes) and len(whole) <= len(rest) + len(rest) // 8


def follower_rows(
    view: memoryview,
    batches: Sequence[PlacedBatch],
    *,
    end: int,
    log: TopicPartition,
) -> list[AppendedBatch]:
    """Check that a leader's batches are whole and go up from `end`, where the log ends.

    They may leave gaps, as the leader's log does where it was compacted, under today's policy or an earlier one.
    """
    rows: list[AppendedBatch] = []
    for placed in batches:
        position, size, header = placed
        base = header.base_offset
        if base < end:
            raise StorageError(
                f"{log}: the leader sent offset {base}, this log goes on at {end}; "
                "truncate before fetching"
            )
        if header.magic != 2 or header.last_offset_delta < 0 or not crc_matches(view, placed):
            raise KafkaError(
                ErrorCode.corrupt_message, f"{log}: the leader's batch {base} has a wrong CRC"
            )
        last = header.last_offset
        row = (position, size, base, last, header.max_timestamp, header.leader_epoch)
        rows.append(new_row(AppendedBatch, row))
        end = last + 1
    return rows


def run_from(
    rows: Sequence[AppendedBatch], start: int, active_size: int, bytes_max: int
) -> tuple[Sequence[AppendedBatch], int]:
    """What of `rows`, from `start` on, goes into one segment, told by its place in that run; and where it ends.

    At least one row; the active segment has `active_size` bytes, it or the next may have `bytes_max`. Rows that
    compaction left 2^31 offsets apart never share one.
    """
    stop = _fitting(rows, start, active_size, bytes_max)
    begin, last = rows[start].position, rows[stop - 1]
    run = rows[start:stop]
    if begin:
        run = [row._replace(position=row.position - begin) for row in run]
    return run, last.position + last.size


def _fitting(rows: Sequence[AppendedBatch], start: int, active_size: int, bytes_max: int) -> int:
    """Which of the `rows` behind `start` is the first that does not fit with them."""
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


def next_base(rows: Sequence[AppendedBatch], end: Offset) -> Offset:
    """The base of a segment that begins with `rows`, in a log that ends at `end`.

    That is the log's end, so that a gap which the leader's log has lies inside of a segment (`gaps`); but for an
    offset that could not be named from there.
    """
    far = rows[-1].last_offset - end > RELATIVE_OFFSET_MAX
    return Offset(rows[0].base_offset) if far else end


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


def larger_than_a_segment(size: int, bytes_max: int) -> KafkaError:
    """The refusal of a batch that no segment takes."""
    what = f"{size} bytes do not fit a segment of {bytes_max}"
    return KafkaError(ErrorCode.record_list_too_large, what)


def unpinned(records: Buffer) -> memoryview:
    """A view of `records` that may be kept: a small slice of a large frame is copied."""
    view = memoryview(records)
    whole = view.obj
    if isinstance(whole, _OWNED) and len(whole) > 2 * len(view) + PINNED_SLACK_BYTES:
        return memoryview(bytes(view))
    return view
