"""Trace events of offsets that moved, with the cause: HW and LEO of a partition, and LEOs of its followers.

Owns: `OffsetTrace`. Within `harrow.trace.hw.interval.ms` a partition gives at most one `partition.hw` and one
`partition.leo` event, and always the last value. The interval 0 means every change; only then each follower's LEO is
traced too (`partition.follower_leo`), because it comes with each fetch.

    event                    causes
    partition.hw             append, follower-fetch, isr, became-leader, flush, fetch-response, truncated
    partition.leo            append, fetch-response
    partition.truncated      the truncation rule with what led to it
    partition.follower_leo   follower-fetch

The cause is the cause of the last change that an event stands for. Nothing here may fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..events.partitions import FollowerLogEndMoved, HighWatermarkMoved, LogEndMoved, PartitionTruncated

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..ids import NodeId, TopicPartition
    from .partition import Partition


class PacedEvents:
    """Events of one kind, at most one an interval for each partition."""

    __slots__ = ("_event", "_host", "_interval_ms", "_last_ms", "_pending")

    def __init__(self, host: Host, event: type[HighWatermarkMoved | LogEndMoved], interval_ms: int) -> None:
        self._host = host
        self._event = event
        self._interval_ms = interval_ms
        self._last_ms: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, str] = {}
        """Partitions whose event waits for the end of the interval, with the cause of the last change."""

    def moved(self, partition: Partition, cause: str) -> None:
        """Trace `partition` as it is now, or at the end of the interval as it is then."""
        if self._interval_ms == 0:
            self._emit(partition, cause)
            return
        tp = partition.topic_partition
        if tp in self._pending:
            self._pending[tp] = cause
            return
        now_ms = self._host.clock.monotonic_ms()
        due_ms = self._last_ms.get(tp, now_ms - self._interval_ms) + self._interval_ms
        if due_ms <= now_ms:
            self._last_ms[tp] = now_ms
            self._emit(partition, cause)
            return
        self._pending[tp] = cause
        self._host.tasks.call_later(due_ms - now_ms, self._trailing, partition)

    def _trailing(self, partition: Partition) -> None:
        tp = partition.topic_partition
        self._last_ms[tp] = self._host.clock.monotonic_ms()
        self._emit(partition, self._pending.pop(tp))

    def _emit(self, partition: Partition, cause: str) -> None:
        topic, index = partition.topic_partition
        self._host.trace.emit(
            self._event(
                topic=topic,
                partition=index,
                hw=partition.high_watermark,
                leo=partition.log_end_offset,
                cause=cause,
            )
        )


class OffsetTrace:
    """The offset events of one broker."""

    def __init__(self, host: Host, interval_ms: int) -> None:
        self._host = host
        self.every = interval_ms == 0
        """Every change is traced, so followers' LEOs too."""
        self.high_watermark = PacedEvents(host, HighWatermarkMoved, interval_ms).moved
        self.log_end = PacedEvents(host, LogEndMoved, interval_ms).moved
        self._follower_ends: dict[tuple[TopicPartition, NodeId], tuple[int, int]] = {}

    def follower(self, partition: Partition, node: NodeId, offset: int) -> None:
        """`node` has fetched `partition`, led here, from `offset`."""
        tp = partition.topic_partition
        end = (partition.leader_epoch, offset)
        if self._follower_ends.get((tp, node)) == end:
            return
        self._follower_ends[tp, node] = end
        self._host.trace.emit(
            FollowerLogEndMoved(topic=tp.topic, partition=tp.partition, node=node, leo=offset, cause="follower-fetch")
        )

    def truncated(self, partition: Partition, before: int, cause: str) -> None:
        """A follower's log, which ended at `before`, was truncated."""
        topic, index = partition.topic_partition
        self._host.trace.emit(
            PartitionTruncated(
                topic=topic,
                partition=index,
                cause=cause,
                from_offset=before,
                to_offset=partition.log_end_offset,
            )
        )
