"""Re-reading a segment: what of it is good (B9, B10), and what it says of producers and epochs.

Rules of a good batch: magic 2, a possible length, all its bytes there, CRC right, base offset at or
above where the batch before it ended, last offset not before the base, below the next segment and
within 31 bits of the segment's base. The first batch that breaks one ends the log. Base offsets are not
under the CRC and compaction leaves gaps: a batch after a gap that the batch behind it contradicts is the
bad one itself.

Source: Kafka's `LogSegment.recover`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from ..ids import LeaderEpoch, Offset
from ..wire.batch_header import ATTRIBUTES_AT
from ..wire.batches import HEADER_SIZE, BatchHeader, PlacedBatch, header_at
from .indexes import RELATIVE_OFFSET_MAX
from .leader_epochs import LeaderEpochs
from .producer_states import ProducerStates
from .results import Origin
from .segment import LogSegment

READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecovery:
    """What re-reading a segment found."""

    end_offset: Offset
    truncated_bytes: int
    reason: str
    """Why the bytes were cut off; "" when none were."""


class _BadBatchError(Exception):
    """The bytes at `position` are no good batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


def recover_segment(
    segment: LogSegment,
    *,
    epochs: LeaderEpochs | None,
    producers: ProducerStates | None,
    upper: int,
) -> SegmentRecovery:
    """BLOCKS. Check every batch, cut the file at the first bad one, rebuild both indexes.

    `upper` is the next segment's base offset. `epochs` and `producers` are told what the batches say,
    where they are given; when something was cut off, both may have been told too much.
    """
    before = segment.file.size()
    reason = _read_all(segment, epochs, producers, upper)
    if reason and segment.size < segment.file.size():
        segment.file.truncate(segment.size)
        # the indexes and the end were told of a batch that a later one gave the lie to
        _read_all(segment, None, None, upper)
    segment.become_inactive()
    return SegmentRecovery(
        end_offset=segment.end_offset(), truncated_bytes=before - segment.size, reason=reason
    )


def _read_all(
    segment: LogSegment,
    epochs: LeaderEpochs | None,
    producers: ProducerStates | None,
    upper: int,
) -> str:
    """Tell of every good batch; `segment.size` is where they end, the answer why they do."""
    segment.reset_indexes()
    end_offset = segment.base_offset
    valid = 0  # where the last good batch ends
    doubtful = -1  # where it lies, when it followed a gap
    reason = ""
    try:
        for position, data, header in _batches(segment):
            _check(segment, position, data, header, end_offset, upper, doubtful)
            doubtful = position if header.base_offset > end_offset else -1
            segment.note_batch(position, header.size, header.last_offset, header.max_timestamp)
            if epochs is not None and header.leader_epoch > epochs.latest():
                epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
            end_offset = header.last_offset + 1
            if producers is not None:
                _tell(producers, data, header)
            valid = position + header.size
    except _BadBatchError as bad:
        reason = f"{segment.file.path} at byte {bad.position}: {bad}"
        valid = bad.position
    segment.size = valid
    return reason


def replay_producers(
    segments: Iterable[LogSegment], producers: ProducerStates, end: Offset
) -> None:
    """BLOCKS. Tell `producers` of every batch from `producers.map_end` up to `end`."""
    for segment in segments:
        start = producers.map_end
        if segment.base_offset >= end:
            break
        position = segment.offsets.lookup(start) if start > segment.base_offset else 0
        for at, header in segment.scan(position):
            if header.base_offset >= end:
                break
            if header.last_offset < start or header.producer_id < 0:
                continue
            size = header.size if header.is_control else 0
            _tell(producers, memoryview(segment.file.read_at(at, size) if size else b""), header)
    producers.commit({}, end)


def _tell(producers: ProducerStates, data: memoryview, header: BatchHeader) -> None:
    placed = (PlacedBatch(0, header.size, header),)
    planned = producers.plan(data, placed, (header.base_offset,), Origin.REPLICATION)
    producers.commit(planned, Offset(header.last_offset + 1))


def _check(
    segment: LogSegment,
    position: int,
    data: memoryview,
    header: BatchHeader,
    end_offset: int,
    upper: int,
    doubtful: int,
) -> None:
    if header.base_offset < end_offset and doubtful >= 0:
        raise _BadBatchError(doubtful, "its base offset contradicts the next batch")
    if crc32c(data[ATTRIBUTES_AT:]) != header.crc:
        raise _BadBatchError(position, f"CRC of batch {header.base_offset} is wrong")
    if header.base_offset < end_offset or header.last_offset_delta < 0:
        raise _BadBatchError(position, f"offset {header.base_offset} after {end_offset - 1}")
    if header.last_offset >= upper:
        raise _BadBatchError(position, f"offset {header.last_offset}: the next segment has {upper}")
    if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        raise _BadBatchError(
            position, f"offset {header.last_offset} is too far from the segment's base"
        )


def _batches(segment: LogSegment) -> Iterator[tuple[int, memoryview, BatchHeader]]:
    """Every whole batch with its bytes; _BadBatchError where there is none and the file goes on."""
    file, end = segment.file, segment.file.size()
    position = 0
    want = READ_BYTES
    while position < end:
        chunk = memoryview(file.read_at(position, min(want, end - position)))
        at = 0
        want = READ_BYTES
        while len(chunk) - at >= HEADER_SIZE:
            header = header_at(chunk, at)
            if header.magic != 2 or header.size < HEADER_SIZE:
                raise _BadBatchError(
                    position + at, f"magic {header.magic}, length {header.length}: no batch"
                )
            if header.size > end - position - at:
                break  # a length that runs past the file: cut off, or no length at all
            if header.size > len(chunk) - at:
                want = max(want, header.size)
                break
            yield position + at, chunk[at : at + header.size], header
            at += header.size
        position += at
        if want == READ_BYTES and at == 0:
            raise _BadBatchError(position, f"cut off after {end - position} bytes")
