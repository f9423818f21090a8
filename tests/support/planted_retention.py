"""A planted bug: retention by time removes the oldest segment whatever its age is."""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.storage.log_manager import LogManager

TITLE = "retention removes the oldest segment of each log, whatever its age is"


def plant(planter: Planter) -> None:
    """Remove a segment at each check, as long as the log has three."""
    planter.replace_method(LogManager, "clean_up", _one_segment)


def _one_segment(self: LogManager) -> int:
    removed = 0
    for log in self.logs():
        ends = [segment.base_offset for segment in log.segments[1:]]
        if len(ends) > 1 and ends[0] <= log.high_watermark():
            log.delete_oldest(1, "retention.ms")
            removed += 1
    return removed
