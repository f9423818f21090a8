"""Looking up a timestamp in a segment (B4): the time index says where to begin, the batches decide.

An entry of the time index is used only if the batch with its offset has that timestamp, so that a wrong index costs
time and never a record. Source: Kafka's `LogSegment.findOffsetByTimestamp`.
"""

from __future__ import annotations

from ..ids import LeaderEpoch, Offset
from ..wire.batches import HEADER_SIZE, header_at
from ..wire.records import each_record
from .segment import LogSegment


def time_at(segment: LogSegment, offset: int) -> int:
    """The largest timestamp of the batch with `offset`; -1 when no batch has it."""
    found = segment.find(offset)
    if found is None or found[1] > offset:
        return -1
    return header_at(segment.file.read_at(found[0], HEADER_SIZE)).max_timestamp


def find_timestamp(
    segment: LogSegment, timestamp: int, start_offset: int, record_bytes_max: int
) -> tuple[int, Offset, LeaderEpoch] | None:
    """BLOCKS. Timestamp, offset and leader epoch of the first record at or after both; None when there is none.

    KafkaError(invalid_record) at a record of a compressed batch that is larger than `record_bytes_max`.
    """
    time, offset = segment.times.lookup(timestamp)
    if offset <= start_offset or time_at(segment, offset) != time:
        offset = start_offset
    found = segment.find(offset)
    if found is None:
        return None
    for at, header in segment.scan(found[0]):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        for record in each_record(segment.file.read_at(at, header.size), record_bytes_max):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, Offset(record.offset), LeaderEpoch(header.leader_epoch)
    return None
