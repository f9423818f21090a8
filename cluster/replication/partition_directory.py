"""The replicas of this broker: which partitions are here, and the names and ids of their topics.

Owns: `PartitionDirectory`. It creates a partition together with its log and drops it again; `on_drop` is called after a
partition has left the directory. A partition whose log lies here under another topic id belongs to a deleted topic
of the same name: its log is deleted and a new one begins.

Source: the `allPartitions` part of Kafka's `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, OpenFilesError
from ..ids import NO_EPOCH
from ..wire.topic_ids import text_of
from .partition import Partition

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..ids import NodeId, TopicPartition
    from ..storage.log_manager import LogManager
    from ..wire.topic_ids import UUID
    from .cluster_metadata import ClusterMetadata
    from .high_watermark_checkpoint import HighWatermarkCheckpoint

PartitionCallback = Callable[[Partition], None]


class PartitionDirectory:
    """Partitions by name; the only place where one is created or dropped."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        config: BrokerConfig,
        logs: LogManager,
        checkpoint: HighWatermarkCheckpoint,
        metadata: ClusterMetadata,
        on_flush_finished: PartitionCallback,
        on_drop: PartitionCallback,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._lag_time_max_ms = config.number("replica.lag.time.max.ms")
        self._silence_max_ms = config.number("harrow.replica.silence.max.ms")
        self.shortest_lag_ms = min(self._lag_time_max_ms, self._silence_max_ms or self._lag_time_max_ms)
        """The shorter one of the times after which a member leaves an ISR."""
        self._logs = logs
        self._checkpoint = checkpoint
        self._metadata = metadata
        self._on_flush = on_flush_finished
        self._on_drop = on_drop
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topic_names: dict[UUID, str] = {}
        self._replicas_of: dict[str, int] = {}
        """How many partitions of a topic are here; topics without any are left out."""
        self.unopened: dict[TopicPartition, str] = {}
        """Replicas that have no log here, because this process may open no more files; and the reason in words."""
        self.partition: Callable[[TopicPartition], Partition | None] = self._partitions.get
        """The replica of a partition here; None when the controller placed none here."""
        self.topic_name: Callable[[UUID], str | None] = self._topic_names.get
        """The name of a topic by its id; None unless a replica of it is here. See `topic_elsewhere`."""

    def partitions(self) -> Iterable[Partition]:
        """All replicas here."""
        return tuple(self._partitions.values())

    def missing(self, tp: TopicPartition) -> ErrorCode:
        """The error for a client when `partition(tp)` is None; each makes it refresh its metadata.

        An index that a known topic does not have is unknown, as in Kafka.
        """
        if tp in self.unopened:
            return ErrorCode.kafka_storage_error
        known = self._metadata.has_partition(tp)
        return ErrorCode.not_leader_or_follower if known else ErrorCode.unknown_topic_or_partition

    def is_unknown(self, tp: TopicPartition) -> bool:
        """Whether the cluster has no such partition, as far as this broker knows."""
        unknown = ErrorCode.unknown_topic_or_partition
        return tp not in self._partitions and self.missing(tp) is unknown

    def topic_elsewhere(self, topic_id: UUID) -> str | None:
        """The name of a topic of the cluster that has no replica here, by its id.

        None where a replica of that name is here: it belongs to another id, and metadata is older than the replica.
        """
        name = self._metadata.topic_name(topic_id)
        return None if name is None or name in self._replicas_of else name

    def leader_of(self, tp: TopicPartition, epoch: int = -1) -> Partition:
        """The partition of `tp`, led here under `epoch` (only -1: any). KafkaError with the code for the client."""
        partition = self._partitions.get(tp)
        if partition is None:
            raise KafkaError(self.missing(tp))
        error = partition.check_leader(epoch)
        if epoch < NO_EPOCH and not partition.failed:  # older than any; in a fetch it states none
            error = ErrorCode.fenced_leader_epoch
        if error is not ErrorCode.none:
            raise KafkaError(error)
        return partition

    def create(
        self, tp: TopicPartition, topic_id: UUID | None, overrides: Mapping[str, object], *, is_new: bool = True
    ) -> Partition:
        """The partition of `tp`; it is created with its log unless it is here. KafkaError, StorageError, OSError."""
        if topic_id is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"{tp}: LeaderAndIsr without a topic id")
        found = self._partitions.get(tp)
        if found is not None:
            if found.topic_id == topic_id:
                return found
            self.drop(found)
            self.delete_log(tp)
            # The topic of the old id is deleted: the id must not lead to the new topic of the same name.
            self._topic_names.pop(found.topic_id, None)
        text = text_of(topic_id)
        log = self._logs.get(tp)
        if log is not None and log.topic_id and log.topic_id != text:
            self.delete_log(tp)
        try:
            log = self._logs.create(tp, text, self._config.topic(overrides), is_new=is_new)
        except OpenFilesError as error:
            self.unopened[tp] = str(error)
            raise
        self.unopened.pop(tp, None)
        partition = Partition(
            tp,
            log,
            node_id=self._node_id,
            topic_id=topic_id,
            lag_time_max_ms=self._lag_time_max_ms,
            silence_max_ms=self._silence_max_ms,
            high_watermark=self._checkpoint.read(tp),
            alive=self._metadata.is_alive,
        )
        log.on_fsync_completed = lambda: self._on_flush(partition)
        assert tp not in self._partitions, f"{tp} is here already"
        self._partitions[tp] = partition
        self._topic_names[topic_id] = tp.topic
        self._replicas_of[tp.topic] = self._replicas_of.get(tp.topic, 0) + 1
        return partition

    def drop(self, partition: Partition) -> None:
        """Stop a replica and take it out of the directory; its log stays."""
        tp = partition.topic_partition
        assert self._partitions.get(tp) is partition, f"{tp} is not here"
        self._checkpoint.remember(tp, partition.high_watermark)
        partition.stop()
        del self._partitions[tp]
        self._replicas_of[tp.topic] -= 1
        if not self._replicas_of[tp.topic]:
            del self._replicas_of[tp.topic]
            self._topic_names.pop(partition.topic_id, None)
        self._on_drop(partition)

    def delete_log(self, tp: TopicPartition) -> None:
        """Delete the log of `tp`, if there is one. StorageError, OSError."""
        self._checkpoint.forget(tp)
        self.unopened.pop(tp, None)
        if self._logs.get(tp) is not None:
            self._logs.delete(tp)

    def state(self) -> list[dict[str, object]]:
        """Every replica here, JSON-able: for the control op `state`."""
        return [partition.state() for _, partition in sorted(self._partitions.items())]
