"""Re-reading a segment: its valid batches (B9, B10), and their leader epochs and producers.

A batch is valid when it has magic 2, a possible length, all its bytes, a right CRC, a base offset at or above the end
of the batch before, a last offset not below the base offset, below the next segment and within 31 bits of the
segment's base offset, and a leader epoch that is absent or does not fall (after a power loss, batches that were
truncated may be back behind the batches that replaced them). The first invalid batch ends the log. The CRC does not
cover base offsets, and compaction leaves gaps: when a batch contradicts the batch before it, and that batch followed
a gap, the earlier batch is the bad one.

Source: Kafka's `LogSegment.recover`, `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from ...ids import LeaderEpoch, Offset
from ...wire.batch_header import ATTRIBUTES_AT, LENGTH_MIN
from ...wire.batches import HEADER_SIZE, LOG_OVERHEAD, header_at
from ..indexes.sparse_index import RELATIVE_OFFSET_MAX
from ..leader_epochs import LeaderEpochs
from ..producers.producer_states import NOTHING, ProducerStates
from ..producers.replay import replay_batch
from ..segment import LogSegment

READ_BYTES = 1024 * 1024

_unpack = struct.Struct(">qiibI2xi8xqq").unpack_from
"""Of a header: base offset, length, leader epoch, magic, CRC, last offset delta, max timestamp, producer id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecovery:
    """The result of re-reading a segment."""

    end_offset: Offset
    truncated_bytes: int
    reason: str
    """Why bytes were truncated; "" when none were."""


class OffsetOverflowError(Exception):
    """The valid batch at `position` lies too far from its segment's base offset: the segment must be split."""

    def __init__(self, segment: LogSegment, position: int) -> None:
        super().__init__(f"{segment.file.path} at byte {position}: offset overflow")
        self.segment = segment
        self.position = position


def recover_segment(
    segment: LogSegment,
    *,
    epochs: LeaderEpochs | None,
    producers: ProducerStates,
    upper: int,
    before_cut: Callable[[], None],
) -> SegmentRecovery:
    """BLOCKS. Check every batch, truncate the file at the first bad batch, rebuild all indexes.

    `upper` is the next segment's base offset. `producers` is the state before the segment; the batches are applied to
    it, and to `epochs` if given. When bytes were truncated, both may contain too much. `before_cut` removes what must
    not outlive the bad batch: after a crash recovery finds that batch again. OffsetOverflowError: the segment is valid,
    and must be split.
    """
    before = segment.file.size()
    found = _read_all(segment, epochs, producers, upper)
    if 0 <= found.overflow < found.valid:
        raise OffsetOverflowError(segment, found.overflow)
    if found.reason:
        before_cut()
        segment.file.truncate(found.valid)
        # the indexes and the end may include a batch that a later batch has contradicted
        again = _read_all(segment, None, None, upper) if found.doubted else found
        found = found._replace(end_offset=again.end_offset)
    assert segment.base_offset <= found.end_offset <= upper, f"{segment.file.path}: {found}"
    assert found.valid <= before, f"{segment.file.path}: {found} of {before} bytes"
    segment.size = found.valid
    segment.become_inactive()
    return SegmentRecovery(
        end_offset=Offset(found.end_offset), truncated_bytes=before - found.valid, reason=found.reason
    )


class _Read(NamedTuple):
    """One pass over a segment's file."""

    valid: int
    """Position after the last valid batch."""
    end_offset: int
    reason: str = ""
    doubted: bool = False
    """The last batch that was applied is bad after all."""
    overflow: int = -1
    """Position of the first batch too far from the segment's base offset; no batch from it on was applied."""


def _read_all(segment: LogSegment, epochs: LeaderEpochs | None, producers: ProducerStates | None, upper: int) -> _Read:
    """Apply every valid batch."""
    file, size = segment.file, segment.file.size()
    reading = _Reading(segment, epochs, producers, upper)
    position, want = 0, READ_BYTES
    while position < size and not reading.reason:
        chunk = memoryview(file.read_at(position, min(want, size - position)))
        valid = reading.read(chunk, position, size - position)
        want = max(READ_BYTES, reading.wants)
        if valid == 0 and want == READ_BYTES and not reading.reason:
            reading.stop(position, f"cut off after {size - position} bytes")
        position += valid
    if reading.reason:
        return _Read(reading.bad, reading.end, reading.reason, reading.bad < position, reading.overflow)
    if producers is not None:
        producers.commit(NOTHING, Offset(reading.end))
    return _Read(position, reading.end, overflow=reading.overflow)


class _Reading:
    """The state of a pass over a segment's file."""

    __slots__ = (
        "_doubtful",
        "_entry_above",
        "_epochs",
        "_far",
        "_newest_epoch",
        "_producers",
        "_segment",
        "_upper",
        "bad",
        "end",
        "overflow",
        "reason",
        "wants",
    )

    def __init__(
        self, segment: LogSegment, epochs: LeaderEpochs | None, producers: ProducerStates | None, upper: int
    ) -> None:
        self._segment = segment
        self._entry_above = segment.begin_indexes()
        self._epochs = epochs
        self._producers = producers
        self._upper = upper
        self._far = segment.base_offset + RELATIVE_OFFSET_MAX
        self._newest_epoch: int = -1 if epochs is None else epochs.latest()
        self._doubtful = -1  # position of the batch before, if that followed a gap
        self.end = segment.base_offset
        """Offset after the last valid batch."""
        self.overflow = -1
        self.wants = 0
        """Bytes of the batch that did not fit the last chunk."""
        self.bad = -1
        self.reason = ""

    def read(self, chunk: memoryview, position: int, remaining: int) -> int:
        """Apply the whole batches in `chunk`, read at `position` with `remaining` bytes; returns their size."""
        self.wants = 0
        segment, upper, far = self._segment, self._upper, self._far
        end, doubtful, entry_above = self.end, self._doubtful, self._entry_above
        newest_epoch = self._newest_epoch
        newest = segment.max_timestamp
        at, whole = 0, len(chunk)
        last_header = whole - HEADER_SIZE
        while at <= last_header:
            # unpacked here, and in locals: this loop is the cost of an unclean start
            base, length, epoch, magic, crc, delta, time, producer = _unpack(chunk, at)
            following = at + length + LOG_OVERHEAD
            if magic != 2 or length < LENGTH_MIN:
                self.stop(position + at, f"magic {magic}, length {length}: no batch")
                break
            if following > whole:
                if following <= remaining:
                    self.wants = following - at  # else the batch is cut off, or its length is wrong
                break
            last = base + delta
            crc_matches = crc32c(chunk[at + ATTRIBUTES_AT : following]) == crc
            rises = epoch >= newest_epoch or epoch < 0
            if not (crc_matches and end <= base <= last < upper and rises):
                self.end, self._doubtful, self._newest_epoch = end, doubtful, newest_epoch
                self._refuse(position + at, base, last, epoch, crc_matches=crc_matches)
                break
            doubtful = position + at if base > end else -1
            if last <= far:
                if time > newest:
                    segment.max_timestamp = newest = time
                    segment.max_timestamp_offset = last
                if position + at > entry_above:
                    entry_above = segment.note_entry(position + at, last)
                if epoch > newest_epoch or producer >= 0:
                    self._apply(chunk[at:following], end)
            elif self.overflow < 0:
                self.overflow = position + at
            newest_epoch = epoch if epoch >= 0 else newest_epoch
            end = last + 1
            at = following
        self.end, self._doubtful, self._entry_above = end, doubtful, entry_above
        self._newest_epoch = newest_epoch
        return at

    def stop(self, position: int, what: str) -> None:
        """The batch at `position` is bad."""
        self.bad = position
        self.reason = f"{self._segment.file.path} at byte {position}: {what}"

    def _refuse(self, position: int, base: int, last: int, epoch: int, *, crc_matches: bool) -> None:
        if base < self.end and self._doubtful >= 0:
            self.stop(self._doubtful, "its base offset contradicts the next batch")
        elif not crc_matches:
            self.stop(position, f"CRC of batch {base} is wrong")
        elif self.end <= base <= last < self._upper:  # truncated before, and back after a power loss
            self.stop(position, f"leader epoch {epoch} of batch {base} follows {self._newest_epoch}")
        else:
            where = f"[{self.end}, {self._upper})"
            self.stop(position, f"offsets {base} to {last} do not lie in {where}")

    def _apply(self, batch: memoryview, end: int) -> None:
        """Apply a batch to the leader epochs and the producer states; the batch before ends at `end`."""
        header = header_at(batch)
        if self._epochs is not None and header.leader_epoch > self._epochs.latest():
            base = Offset(header.base_offset)
            self._epochs.rebuild(LeaderEpoch(header.leader_epoch), Offset(end), base)
        if header.producer_id >= 0 and self._producers is not None:
            replay_batch(self._producers, batch, header, self._segment)


def rebuild_epochs(segments: Iterable[LogSegment], epochs: LeaderEpochs) -> None:
    """BLOCKS. Rebuild the empty `epochs`, whose checkpoint was lost, from every batch."""
    for segment in segments:
        for _, header in segment.scan():
            if header.leader_epoch < 0:
                return
            if header.leader_epoch > epochs.latest():
                epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
