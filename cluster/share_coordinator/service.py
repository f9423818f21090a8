"""The share-partitions that this broker coordinates: the operations of requests 83 to 87, one share-partition each.

Owns: the coordinator runtime of `__share_group_state`. Each operation raises KafkaError with the code and the message
for the caller: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, the fences of `stored_shares.py`, INVALID_REQUEST for a
share-partition without a topic id or with a negative number, UNKNOWN_TOPIC_OR_PARTITION for one that does not exist.

Source: Kafka's ShareCoordinatorService, and the maybeGet…Error methods of ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..coordinators import CoordinatorRuntime
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host, Promise
from ..ids import LeaderEpoch, Offset, TopicPartition
from ..internal_topics import SHARE_STATE
from ..replication.delete_records import delete_before
from .records import StoredRecord, Update
from .shard import ShareEnvironment, ShareShard
from .stored_shares import FENCED_LEADER
from .values import SharePartition, ShareState, StateBatch, StateSummary

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..replication import ReplicaManager

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
UNKNOWN = "This server does not host this topic-partition."

__all__ = ["FENCED_LEADER", "ShareService", "check_known"]


def check_known(cache: MetadataCache, share: SharePartition) -> None:
    """Return if the topic-partition exists.

    KafkaError(unknown_topic_or_partition) ends the leader's state of the share-partition, with its locks. So a
    coordinator that has just started, and whose metadata have not even the topic of its own partitions, gives
    coordinator_load_in_progress, after which the leader tries again. (A broker of Kafka has its metadata by then.)
    """
    topic = cache.topic_by_id(share.topic_id)
    if topic is not None and cache.partition_count(topic.name) > share.partition:
        return
    if not cache.partition_count(SHARE_STATE.name):
        raise KafkaError(ErrorCode.coordinator_load_in_progress)
    raise KafkaError(ErrorCode.unknown_topic_or_partition, UNKNOWN)


class ShareService:
    """The states of share-partitions."""

    def __init__(self, host: Host, config: BrokerConfig, replicas: ReplicaManager, cache: MetadataCache) -> None:
        self.host = host
        self._cache = cache
        self._replicas = replicas
        number = config.number
        environment = ShareEnvironment(
            host=host,
            updates_per_snapshot=number("share.coordinator.snapshot.update.records.per.snapshot"),
            prune_ms=number("share.coordinator.state.topic.prune.interval.ms"),
            cold_ms=number("share.coordinator.cold.partition.snapshot.interval.ms"),
            delete_before=self._delete_before,
        )
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            host,
            config,
            SHARE_STATE,
            replicas,
            cache,
            write_timeout_ms=number("share.coordinator.write.timeout.ms"),
            factory=lambda shard: ShareShard(shard, environment),
        )

    def _delete_before(self, tp: TopicPartition, offset: Offset) -> None:
        partition = self._replicas.partition(tp)
        if partition is None:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        delete_before(partition, offset)

    def _shard(self, share: SharePartition, *, leader_epoch: int = 0, state_epoch: int = 0) -> ShareShard:
        """The shard; KafkaError(not_coordinator), and KafkaError(invalid_request) for a negative number."""
        shard = self.runtime.active(share.coordinator_key)
        if share.partition < 0:
            raise KafkaError(ErrorCode.invalid_request, NEGATIVE_PARTITION)
        if leader_epoch < 0:
            raise KafkaError(ErrorCode.invalid_request, NEGATIVE_LEADER_EPOCH)
        if state_epoch < 0:
            raise KafkaError(ErrorCode.invalid_request, NEGATIVE_STATE_EPOCH)
        return shard

    # ---- operations ----------------------------------------------------------------------------------

    def initialize(self, share: SharePartition, *, state_epoch: int, start_offset: Offset) -> Promise[None]:
        """Create the state, or begin it again."""
        shard = self._shard(share, state_epoch=state_epoch)

        def decide() -> tuple[None, Sequence[StoredRecord]]:
            now_ms = self.host.clock.wall_ms()
            snapshot = shard.shares.initialized(share, state_epoch, start_offset, now_ms)
            check_known(self._cache, share)
            return None, [(share, snapshot)]

        return shard.submit(share, decide)

    def read(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> Promise[ShareState]:
        """The state, for a leader whose epoch is stored before the state is answered."""
        shard = self._shard(share, leader_epoch=leader_epoch)

        def decide() -> tuple[ShareState, Sequence[StoredRecord]]:
            found, record = shard.shares.read(share, leader_epoch, self.host.clock.wall_ms())
            check_known(self._cache, share)
            return found, [] if record is None else [(share, record)]

        return shard.submit(share, decide)

    def write(
        self,
        share: SharePartition,
        *,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Promise[None]:
        """Store changes."""
        shard = self._shard(share, leader_epoch=leader_epoch, state_epoch=state_epoch)
        update = Update(
            snapshot_epoch=0,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            completed=delivery_complete_count,
            batches=tuple(batches),
        )

        def decide() -> tuple[None, Sequence[StoredRecord]]:
            record = shard.shares.written(share, update, state_epoch, self.host.clock.wall_ms())
            check_known(self._cache, share)
            return None, [(share, record)]

        return shard.submit(share, decide)

    def delete(self, share: SharePartition) -> Promise[None]:
        """Forget the state; nothing where there is none."""
        shard = self._shard(share)

        def decide() -> tuple[None, Sequence[StoredRecord]]:
            check_known(self._cache, share)
            return None, [] if shard.shares.get(share) is None else [(share, None)]

        return shard.submit(share, decide)

    def summary(self, share: SharePartition) -> Promise[StateSummary]:
        """The state without its batches."""
        shard = self._shard(share)

        def decide() -> tuple[StateSummary, Sequence[StoredRecord]]:
            check_known(self._cache, share)
            return shard.shares.summary(share), []

        return shard.submit(share, decide)
