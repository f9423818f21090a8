"""Preparing an append: placing a batch at its offset, continuity of a leader's batches, splitting over segments.

Owns no state: functions from batches to rows (`AppendedBatch`), which `Log` then writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError, StorageError
from ..host.seam import Buffer
from ..ids import Offset, TopicPartition
from ..wire.batch_header import new_row
from ..wire.batches import HEADER_SIZE, BatchHeader, PlacedBatch, assign_offset, crc_matches, placed_header, stamp
from .indexes.sparse_index import RELATIVE_OFFSET_MAX
from .producers.producer_entry import BatchMetadata
from .results import AppendedBatch, AppendInfo

PINNED_SLACK_BYTES = 64 * 1024
"""A slice of a frame keeps the whole frame in memory; a slice that would waste more than this is copied."""

_OWNED = (bytes, bytearray)

EPOCH_MOST = 2**31 - 1
"""No leader epoch is higher."""

SHARED_BYTES_LEAST = 8 * 1024
"""A smaller batch is copied: that costs less than two parts at the append and at each fetch."""


def place(records: Buffer, header: BatchHeader, offset: int, leader_epoch: int) -> tuple[Buffer, ...]:
    """The parts to write for the batch `records` at `offset` in the leader's epoch.

    `records` are not changed. A large batch is not copied (B12): the parts are a new header and a view of the rest.
    """
    view = memoryview(records)
    head = placed_header(view, header.length, offset, leader_epoch)
    rest = view[HEADER_SIZE:]
    if len(rest) >= SHARED_BYTES_LEAST and may_share(rest):
        return head, rest
    return (head + rest,)


def place_stamped(
    records: Buffer, offset: int, leader_epoch: int, attributes: int, time_ms: int
) -> tuple[tuple[Buffer, ...], BatchHeader]:
    """As `place`, for a copy with these attributes and this max timestamp; also its new header."""
    data = bytearray(records)
    assign_offset(data, offset, leader_epoch)
    changed = stamp(data, attributes, time_ms)
    return (memoryview(data),), changed


def may_share(rest: memoryview) -> bool:
    """True when a view of a request may be kept instead of a copy: the request is immutable and hardly larger.

    The bytes that a tail counts and the bytes that it keeps in memory then differ by an eighth at most, for a request
    with any number of partitions.
    """
    whole = rest.obj
    return isinstance(whole, bytes) and len(whole) <= len(rest) + len(rest) // 8


def up_to_epoch(batches: Sequence[PlacedBatch], leader_epoch: int) -> Sequence[PlacedBatch]:
    """The batches before the first one of a later leader epoch."""
    if not batches or batches[-1][2].leader_epoch <= leader_epoch:
        return batches  # epochs do not decrease in a log
    epochs = (header.leader_epoch for _, _, header in batches)
    return batches[: next(number for number, epoch in enumerate(epochs) if epoch > leader_epoch)]


def follower_rows(
    view: memoryview, batches: Sequence[PlacedBatch], *, end: int, log: TopicPartition
) -> list[AppendedBatch]:
    """Check that a leader's batches are valid and continue the log, which ends at `end`; one row for each batch.

    Gaps are allowed: the leader's log has them where it was compacted, under its present policy or an earlier one.
    """
    rows: list[AppendedBatch] = []
    for placed in batches:
        position, size, header = placed
        base = header.base_offset
        if base < end:
            raise StorageError(
                f"{log}: the leader sent offset {base}, this log goes on at {end}; truncate before fetching"
            )
        if header.magic != 2 or header.last_offset_delta < 0 or not crc_matches(view, placed):
            raise KafkaError(ErrorCode.corrupt_message, f"{log}: the leader's batch {base} has a wrong CRC")
        last = header.last_offset
        row = (position, size, base, last, header.max_timestamp, header.leader_epoch)
        rows.append(new_row(AppendedBatch, row))
        end = last + 1
    return rows


def run_from(
    rows: Sequence[AppendedBatch], start: int, active_size: int, bytes_max: int
) -> tuple[Sequence[AppendedBatch], int]:
    """The rows from `start` on that fit one segment, with positions relative to the first of them; and their end.

    At least one row. The active segment has `active_size` bytes; a segment may have `bytes_max`. Rows that are 2^31
    offsets apart after a compaction never share a segment.
    """
    stop = _fitting(rows, start, active_size, bytes_max)
    begin, last = rows[start].position, rows[stop - 1]
    run = rows[start:stop]
    if begin:
        run = [row._replace(position=row.position - begin) for row in run]
    return run, last.position + last.size


def _fitting(rows: Sequence[AppendedBatch], start: int, active_size: int, bytes_max: int) -> int:
    """Index of the first row behind `start` that does not fit the same segment."""
    begin, last = rows[start].position, rows[-1]
    far = rows[start].base_offset + RELATIVE_OFFSET_MAX
    room = bytes_max - active_size
    if last.position + last.size - begin <= room and last.last_offset <= far:
        return len(rows)
    if rows[start].size > room:  # these rows start a segment
        room = bytes_max
    stop = start + 1
    while stop < len(rows) and rows[stop].position + rows[stop].size - begin <= room:
        if rows[stop].last_offset > far:
            break
        stop += 1
    return stop


def next_base(rows: Sequence[AppendedBatch], end: Offset) -> Offset:
    """The base offset of a segment that starts with `rows`, in a log that ends at `end`.

    It is the log end offset, so that a gap of the leader's log lies inside a segment (`opening/gaps.py`); except when
    the last offset could not be expressed relative to it.
    """
    far = rows[-1].last_offset - end > RELATIVE_OFFSET_MAX
    return Offset(rows[0].base_offset) if far else end


def duplicate_info(batch: BatchMetadata, log_start: Offset) -> AppendInfo:
    """The result of the first append of a batch that a client has sent again; its time is the batch's, as in Kafka."""
    return AppendInfo(
        Offset(batch.first_offset),
        Offset(batch.last_offset),
        batch.timestamp,
        log_start,
        True,
        batch.last_offset - batch.first_offset + 1,
        0,
    )


def larger_than_a_segment(size: int, bytes_max: int) -> KafkaError:
    """The refusal of a batch that is larger than a segment."""
    what = f"a batch of {size} bytes does not fit a segment of {bytes_max}; raise segment.bytes"
    return KafkaError(ErrorCode.record_list_too_large, what)


def unpinned(records: Buffer) -> memoryview:
    """A view of `records` that may stay in memory: a small slice of a large frame is copied."""
    view = memoryview(records)
    whole = view.obj
    if isinstance(whole, _OWNED) and len(whole) > 2 * len(view) + PINNED_SLACK_BYTES:
        return memoryview(bytes(view))
    return view
