"""What moved, and why: events of a partition's HW and LEO, and of what its leader knows of followers.

Owns: the pace. In `harrow.trace.hw.interval.ms` a partition gives one `partition.hw` and one
`partition.leo` event at most, and always the last value; 0 means every change, and only then each
follower's word (`partition.follower_leo`), for that one comes with each fetch.

    event                    causes
    partition.hw             append, follower-fetch, isr, became-leader, fetch-response, truncated
    partition.leo            append, fetch-response (what was cut is a `partition.truncated` event)
    partition.follower_leo   follower-fetch

The cause is that of the last change an event stands for. Nothing here may fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..ids import NodeId, TopicPartition
    from .partition import Partition


class Paced:
    """Events of one kind, rate-limited for each partition."""

    __slots__ = ("_event", "_host", "_interval_ms", "_last_ms", "_pending")

    def __init__(self, host: Host, event: str, interval_ms: int) -> None:
        self._host = host
        self._event = event
        self._interval_ms = interval_ms
        self._last_ms: dict[TopicPartition, int] = {}
        self._pending: dict[TopicPartition, str] = {}
        """Causes of the changes that will be told at the interval's end."""

    def moved(self, partition: Partition, cause: str) -> None:
        """Tell of `partition` as it is now, or at the end of the interval as it is then."""
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
            self._event,
            topic=topic,
            partition=index,
            hw=partition.high_watermark,
            leo=partition.log_end_offset,
            cause=cause,
        )


class OffsetTrace:
    """The three kinds of event of one broker."""

    def __init__(self, host: Host, interval_ms: int) -> None:
        self._host = host
        self.every = interval_ms == 0
        """Every change is told, so followers' words too."""
        self.high_watermark = Paced(host, "partition.hw", interval_ms).moved
        self.log_end = Paced(host, "partition.leo", interval_ms).moved
        self._followers: dict[tuple[TopicPartition, NodeId], tuple[int, int]] = {}

    def follower(self, partition: Partition, node: NodeId, offset: int) -> None:
        """`node` has fetched `partition`, led here, from `offset`."""
        tp = partition.topic_partition
        word = (partition.leader_epoch, offset)
        if self._followers.get((tp, node)) == word:
            return
        self._followers[tp, node] = word
        self._host.trace.emit(
            "partition.follower_leo",
            topic=tp.topic,
            partition=tp.partition,
            node=node,
            leo=offset,
            cause="follower-fetch",
        )
