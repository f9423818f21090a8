"""Rebuilding producer states from the batches of a log: after its opening, and after a truncation.

The batches were accepted before, so nothing is validated. Source: Kafka's `UnifiedLog.rebuildProducerState`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...ids import Offset
from ...wire.batches import BatchHeader, PlacedBatch
from ..results import Origin
from ..segment import LogSegment
from .producer_states import ProducerStates


def replay_producers(segments: Iterable[LogSegment], producers: ProducerStates, end: Offset) -> None:
    """BLOCKS. Apply every batch from `producers.map_end` up to `end` to `producers`."""
    for segment in segments:
        start = producers.map_end
        if segment.base_offset >= end:
            break
        found = segment.find(start)
        for at, header in segment.scan(found[0]) if found else ():
            if header.base_offset >= end:
                break
            if header.last_offset < start or header.producer_id < 0:
                continue
            size = header.size if header.is_control else 0
            data = memoryview(segment.file.read_at(at, size) if size else b"")
            replay_batch(producers, data, header, None)
    producers.map_end = end  # lower than before where recovery begins below the log start offset


def truncate_producers(
    segments: Iterable[LogSegment], producers: ProducerStates, end: Offset, log_start: Offset, now_ms: int
) -> None:
    """BLOCKS. Restore `producers` as they were at `end`, the end of the truncated log."""
    if producers.touches(end):
        producers.load(end, log_start, now_ms)
        replay_producers(segments, producers, end)
    else:
        producers.remove_snapshots_above(end)
        producers.map_end = end


def replay_batch(producers: ProducerStates, data: memoryview, header: BatchHeader, segment: LogSegment | None) -> None:
    """Apply one accepted batch to `producers`; `segment`: also add aborted transactions to its transaction index."""
    if not header.is_control:
        producers.note(header)
        return
    placed = (PlacedBatch(0, header.size, header),)
    planned = producers.plan(data, placed, None, Origin.REPLICATION)
    aborted = producers.commit(planned, Offset(header.last_offset + 1))
    if segment is not None:
        for transaction in aborted:
            segment.aborted.append(transaction)
