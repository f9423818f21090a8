"""Offsets that are missing between two segments after a power loss.

The file system writes files back in any order: the end of a rolled segment may be lost while the next segment, which
has the offsets behind it, survived. Each segment is valid, so recovery truncates nothing, and the replica would serve a
log that lacks records which its leader takes as replicated. Therefore gaps are looked for when a log is opened after an
unclean stop. They are closed when the topic's policy is known, before any client reads and before the replica follows:
a log that is not compacted is truncated at its first gap, and the replica fetches the rest again.

A compacted log has gaps by nature, and keeps them when its policy changes. The two kinds are distinguished so: cleaned
segments were fsynced, and the cleaner's checkpoint says up to which offset; and a follower whose leader's log has a gap
has that gap inside a segment (`appending.next_base`).

Apache Kafka does not look for such gaps. What may fail: OSError, CorruptLogError.
"""

from __future__ import annotations

from itertools import pairwise

from ...events.logs import LogGapClosed
from ...host.seam import Host
from ...host.seam.failpoints import BEFORE_GAP_CLOSING, passes
from ...ids import Offset
from ..log import Log
from .segment_end import load_end


def first_gap(log: Log, durable: Offset) -> Offset | None:
    """BLOCKS. The first offset that is missing before a segment with a base above `durable`; None when none is."""
    for segment, following in pairwise(log.segments):
        if following.base_offset > durable:
            end = load_end(segment)
            if end < following.base_offset:
                return end
    return None


class Gaps:
    """The gaps that were found at opening, until each log's policy is known."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._first: dict[Log, Offset] = {}

    def look_for(self, log: Log, durable: Offset) -> None:
        """BLOCKS. Remember the first gap of `log` above `durable`, if it has one."""
        gap = first_gap(log, durable)
        if gap is not None:
            self._first[log] = gap

    def close(self, log: Log) -> None:
        """Truncate `log`, whose configuration is the topic's now, at its gap; a compacted log keeps it."""
        gap = self._first.pop(log, None)
        if gap is None or "compact" in log.config.text("cleanup.policy"):
            return
        passes(self._host.failpoints, self._host.trace, BEFORE_GAP_CLOSING)
        topic, partition = log.topic_partition
        lost = log.log_end_offset - gap
        log.truncate_to(gap)
        self._host.trace.emit(LogGapClosed(topic=topic, partition=partition, log_end_offset=gap, offsets_cut=lost))

    def forget(self, log: Log) -> None:
        """`log` is deleted."""
        self._first.pop(log, None)
