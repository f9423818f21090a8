"""Delayed operations and what completes them: appends, high watermarks, fsyncs, changes of role (E2 to E4).

Owns: `WakeUps`, with the five purgatories of replication.

    event                              completes
    a leader's log grew                followers' fetches, when the delivery has ended
    a leader's high watermark moved    produces at once; consumers' fetches when the delivery has ended
    a follower's high watermark moved  consumers' fetches there (KIP-392), when the delivery has ended
    an fsync ended (`flush.messages`)  produces
    a partition's role changed         everything that waits for it
    a follower's log start moved       deletions
    a broker died for metadata         deletions (`ReplicaManager.metadata_updated`)

"When the delivery has ended": when the link has delivered all that it read (else on the next turn of the loop), and
once for everything that this delivery brought about. So the produces of one delivery leave in one fetch response. A
follower's fetch waits under its node id, a consumer's under its partitions.

Source: the purgatory part of Kafka's `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ..events.partitions import WakeUpMissed
from ..ids import TopicPartition
from ..purgatory import Purgatory, PurgatoryTimer

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..host.seam import Host
    from ..ids import NodeId
    from .offset_trace import OffsetTrace
    from .partition import Partition


class WakeUps:
    """The purgatories, and what each event completes."""

    def __init__(self, host: Host, config: BrokerConfig, offsets: OffsetTrace) -> None:
        self._host = host
        self._offsets = offsets
        self._timer = PurgatoryTimer(host)
        produce_purge = config.number("producer.purgatory.purge.interval.requests")
        fetch_purge = config.number("fetch.purgatory.purge.interval.requests")
        delete_purge = config.number("delete.records.purgatory.purge.interval.requests")
        self.produces = Purgatory("Produce", self._timer, produce_purge)
        self.follower_fetches = Purgatory("Fetch", self._timer, fetch_purge)
        self.consumer_fetches = Purgatory("ConsumerFetch", self._timer, fetch_purge)
        share_purge = config.number("share.fetch.purgatory.purge.interval.requests")
        self.share_fetches = Purgatory("ShareFetch", self._timer, share_purge)
        """Of members of share groups; they wait under their share-partitions, too (`share_partitions/`)."""
        self.deletions = Purgatory("DeleteRecords", self._timer, delete_purge)
        for purgatory in (self.produces, self.consumer_fetches):
            purgatory.on_missed = partial(self._missed, purgatory.name)
        self._appended: dict[TopicPartition, Partition] = {}
        self._moved: dict[TopicPartition, None] = {}
        self._flush_due = False

    def _missed(self, purgatory: str, key: Hashable) -> None:
        """Say that no report came of what a delayed operation of the partition `key` waited for."""
        assert isinstance(key, TopicPartition), key
        self._host.trace.emit(WakeUpMissed(topic=key.topic, partition=key.partition, purgatory=purgatory))

    def close(self) -> None:
        """End the timer: no deadline comes any more."""
        self._timer.close()

    def appended(self, partition: Partition) -> None:
        """A leader's log grew: try its high watermark, wake its followers when the delivery has ended."""
        self._offsets.log_end(partition, "append")
        if partition.advance_high_watermark(self._host.clock.monotonic_ms()):
            self.high_watermark_moved(partition, "append")
        if self.follower_fetches.delayed:
            self._appended[partition.topic_partition] = partition
            self._flush_soon()

    def flush_finished(self, partition: Partition) -> None:
        """An fsync that an append waited for has ended."""
        if partition.advance_high_watermark(self._host.clock.monotonic_ms()):
            self.high_watermark_moved(partition, "flush")
        else:
            self.produces.check_and_complete(partition.topic_partition)

    def high_watermark_moved(self, partition: Partition, cause: str) -> None:
        """A leader's high watermark moved: answer producers now, consumers when the delivery has ended."""
        tp = partition.topic_partition
        self.produces.check_and_complete(tp)
        self._offsets.high_watermark(partition, cause)
        if self.consumer_fetches.waiting(tp) or self.share_fetches.waiting(tp):
            self._moved[tp] = None
            self._flush_soon()

    def follower_high_watermark_moved(self, partition: Partition) -> None:
        """A follower's high watermark moved: consumers may wait for it here too (KIP-392)."""
        self._offsets.high_watermark(partition, "fetch-response")
        if self.consumer_fetches.waiting(partition.topic_partition):
            self._moved[partition.topic_partition] = None
            self._flush_soon()

    def roles_changed(self, partitions: Iterable[Partition]) -> None:
        """These partitions lead or follow under another epoch, or not at all: try all that waits for them."""
        changed = False
        for partition in partitions:
            changed = True
            tp = partition.topic_partition
            self.produces.check_and_complete(tp)
            self.deletions.check_and_complete(tp)
            self.consumer_fetches.check_and_complete(tp)
            self.share_fetches.check_and_complete(tp)
        if changed:
            self.follower_fetches.check_all()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._host.network.after_delivery(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        appended, self._appended = self._appended, {}
        moved, self._moved = self._moved, {}
        nodes: set[NodeId] = set()
        for partition in appended.values():
            nodes.update(partition.followers)
        for node in sorted(nodes):
            self.follower_fetches.check_and_complete(node)
        for tp in moved:
            self.complete_consumer_fetches(tp)

    def complete_consumer_fetches(self, topic_partition: TopicPartition) -> None:
        """A high watermark has moved: complete the consumers' fetches that have enough now."""
        self.consumer_fetches.check_and_complete(topic_partition)
        self.share_fetches.check_and_complete(topic_partition)
