"""Retention (B7): deletion of a log's oldest segments.

    by time           `retention.ms` after the segment's largest record timestamp; without one (only when a client
                      sent -1) after the last change of the file
    by size           while the rest is at least `retention.bytes`
    by start offset   segments that end at or below the log start offset (DeleteRecords, the leader's log start)

Only the oldest segments, up to the first segment that stays, and only segments that end at or below the high watermark.
When time or size remove even the active segment, the log rolls first: a log always has a segment, and its end offset
stays. In topics whose policy lacks `delete` only segments below the log start offset are deleted. Files are renamed to
`.deleted` at once and removed after `file.delete.delay.ms` (`Log.discard`).

May fail: StorageError (the disk refused: the log is offline). Source: Kafka's `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..host.seam import Host
from .files import LOG, file_name
from .log import Log
from .segment import LogSegment


def clean_up(host: Host, log: Log) -> int:
    """Delete the segments that retention does not keep; returns how many."""
    removed = _drop(log, _by_start(log), "log start offset")
    if "delete" in log.config.text("cleanup.policy"):
        removed += _drop(log, _by_size(log), "retention.bytes")
        removed += _drop(log, _by_time(host, log), "retention.ms")
    return removed


Rule = Callable[[LogSegment, int], bool]
"""True when the segment, which ends at that offset, may be deleted; called from the oldest on, until False."""


def _by_time(host: Host, log: Log) -> Rule:
    keep_ms = log.config.number("retention.ms")
    now = host.clock.wall_ms()

    def rule(segment: LogSegment, _end: int) -> bool:
        if keep_ms < 0:
            return False
        if segment.size == 0:
            return True  # compaction has emptied it; it must not keep the segments behind it
        newest = segment.max_timestamp
        if newest < 0:
            path = f"{log.folder}/{file_name(segment.base_offset, LOG)}"
            with log.refusals("look at"):
                newest = host.disk.modified_ms(path)
        return now - newest > keep_ms

    return rule


def _by_size(log: Log) -> Rule:
    keep_bytes = log.config.number("retention.bytes")
    excess = log.size - keep_bytes

    def rule(segment: LogSegment, _end: int) -> bool:
        nonlocal excess
        if keep_bytes < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return rule


def _by_start(log: Log) -> Rule:
    active = log.segments[-1]

    def rule(segment: LogSegment, end: int) -> bool:
        return segment is not active and end <= log.log_start_offset

    return rule


def _drop(log: Log, rule: Rule, reason: str) -> int:
    segments = log.segments
    high_watermark = log.high_watermark()
    start, log_end = log.log_start_offset, log.log_end_offset
    assert start <= high_watermark <= log_end, f"{log.folder}: {start}, {high_watermark}, {log_end}"
    count = 0
    for index, segment in enumerate(segments):
        is_active = index == len(segments) - 1
        end = log.log_end_offset if is_active else segments[index + 1].base_offset
        if end > high_watermark or (is_active and segment.size == 0) or not rule(segment, end):
            break
        count += 1
    if count == 0:
        return 0
    if count == len(segments):
        log.roll(reason)
    log.delete_oldest(count, reason)
    return count
