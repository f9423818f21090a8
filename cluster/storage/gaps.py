"""Offsets that are missing between two segments after a power loss.

Files are written back in any order: the end of a rolled segment may be lost while the next segment, which has its
offsets behind, came through. Each is sound by itself, so recovery cuts nothing, and a replica would go on with
records missing that its leader takes it to have. A compacted log has such gaps by nature. So the gap is looked
for when the log is opened after an unclean stop, and closed when the topic's policy is known, before anybody
reads or follows: a log that is not compacted ends where the first gap begins, and fetches the rest again.

Apache Kafka does not look. What may fail: OSError, CorruptLogError.
"""

from __future__ import annotations

from itertools import pairwise

from ..ids import Offset
from .log import Log


def first_gap(log: Log, recovery_point: Offset) -> Offset | None:
    """BLOCKS. Where offsets are missing before a segment that may not be durable; None: nowhere."""
    for segment, following in pairwise(log.segments):
        if following.base_offset > recovery_point:
            end = segment.load_end()
            if end < following.base_offset:
                return end
    return None
