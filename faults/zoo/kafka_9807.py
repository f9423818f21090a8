"""KAFKA-9807: the limit of read_committed is worked out from a high watermark that is read twice.

What was wrong: the last stable offset is the first offset of an open transaction, if that lies below the high
watermark, else the high watermark. The broker read the high watermark for the comparison, and again for the result.
When a thread raised it between the two, a transaction that began at the old high watermark was not seen by the
comparison, and the result was the new high watermark: readers of committed data received an open transaction.

Our brokers have one thread for this, so the plant decides who loses the race: the fetches that a move of the high
watermark completes are those that look while it moves. They compare with the value before the move. Any other fetch
reads the same value twice.

Replaces: `Partition.last_stable_offset`; `Partition.advance_high_watermark` and `WakeUps.complete_consumer_fetches`
also remember what the race needs.
Source: KAFKA-9807; Kafka's `Log.fetchLastStableOffsetMetadata`.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.planting import Planter
from harrow.cluster.replication.partition import Partition
from harrow.cluster.replication.wake_ups import WakeUps

from .bug import Bug
from .shared import SHORT_JOB

TITLE = "KAFKA-9807: the last stable offset is worked out from two high watermarks"


def plant(planter: Planter) -> None:
    """Let a fetch that looks while the high watermark moves compare with the value before."""
    advance, complete = Partition.advance_high_watermark, WakeUps.complete_consumer_fetches
    before_move: WeakKeyDictionary[Partition, Offset] = WeakKeyDictionary()
    moving: set[TopicPartition] = set()

    def advance_and_remember(self: Partition, now_ms: int) -> bool:
        before = self.high_watermark
        moved = advance(self, now_ms)
        if moved:
            before_move[self] = before
        return moved

    def complete_while_it_moves(self: WakeUps, topic_partition: TopicPartition) -> None:
        moving.add(topic_partition)
        complete(self, topic_partition)
        moving.discard(topic_partition)

    def from_two_high_watermarks(self: Partition) -> Offset:
        looked_at = self.high_watermark
        if self.topic_partition in moving:
            looked_at = before_move.get(self, looked_at)
        unstable = self.log.producers.first_unstable_offset(self.high_watermark)
        if unstable is not None and unstable < looked_at:
            return max(unstable, self.log.log_start_offset)
        return self.high_watermark

    planter.replace_method(Partition, "advance_high_watermark", advance_and_remember)
    planter.replace_method(WakeUps, "complete_consumer_fetches", complete_while_it_moves)
    planter.replace_method(Partition, "last_stable_offset", from_two_high_watermarks)


BUG = Bug(
    number=18,
    module=__name__,
    title=TITLE,
    versions="0.11 to 2.5",
    needs=(
        "a consumer of committed data that waits at the last stable offset when a transaction begins, which is aborted"
    ),
    seen_as=frozenset({"aborted-read"}),
    options=SHORT_JOB,
)
