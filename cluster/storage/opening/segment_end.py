"""The end of a segment whose indexes were loaded: its next offset and its largest timestamp.

The walk begins at the last entry of the offset index. It also checks that the last entries of both indexes belong to
this file. Source: Kafka's `LogSegment.readNextOffset`, `sanityCheck`.
"""

from __future__ import annotations

from ...errors import CorruptLogError
from ...ids import Offset
from ..file_records import no_batch
from ..segment import LogSegment
from ..timestamp_search import time_at


def load_end(segment: LogSegment) -> Offset:
    """Offset after the last batch, by walking from the last index entry; completes `max_timestamp`.

    CorruptLogError where the last entries of the indexes belong to another file.
    """
    start = segment.offsets.last_position()
    time, time_offset = segment.times.last()
    found_time = -1
    last = segment.base_offset - 1
    for position, header in segment.scan(start):
        if position == start > 0 and not segment.may_begin_at(header, start, _last_indexed(segment)):
            raise CorruptLogError(f"{segment.offsets.path}: its last entry is of another file")
        last = header.last_offset
        if header.base_offset <= time_offset <= last:
            found_time = header.max_timestamp
        if header.max_timestamp > segment.max_timestamp:
            segment.max_timestamp = header.max_timestamp
            segment.max_timestamp_offset = last
        if position + header.size > segment.size:
            raise no_batch(segment.file.path, position, "cut off")
    if time >= 0 and (found_time if found_time >= 0 else time_at(segment, time_offset)) != time:
        raise CorruptLogError(f"{segment.times.path}: its last entry is of another file")
    return Offset(last + 1)


def _last_indexed(segment: LogSegment) -> int:
    return segment.offsets.entry(len(segment.offsets) - 1)[0]
