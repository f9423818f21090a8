"""Offsets that are missing between two segments after a power loss.

Files are written back in any order: the end of a rolled segment may be lost while the next segment, which has its
offsets behind, came through. Each is sound by itself, so recovery cuts nothing, and a replica would go on with
records missing that its leader takes it to have. So the gap is looked for when the log is opened after an unclean
stop, and closed when the topic's policy is known, before anybody reads or follows: a log that is not compacted ends
where the first gap begins, and fetches the rest again.

A compacted log has such gaps by nature, and keeps them when its policy is changed. They are told apart: what was
cleaned was brought to stable storage, and how far that goes is in the cleaner's checkpoint; a follower to whom a
leader sends a gap has it inside of a segment (`Log`).

Apache Kafka does not look. What may fail: OSError, CorruptLogError.
"""

from __future__ import annotations

from itertools import pairwise

from ...ids import Offset
from ..log import Log
from .segment_end import load_end


def first_gap(log: Log, durable: Offset) -> Offset | None:
    """BLOCKS. Where offsets are missing before a segment from `durable` on; None: nowhere."""
    for segment, following in pairwise(log.segments):
        if following.base_offset > durable:
            end = load_end(segment)
            if end < following.base_offset:
                return end
    return None
