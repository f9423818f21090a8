"""The metrics of a broker, under Kafka's names (C10).

Owns: `broker_metrics`, which registers a sample source for each room. A source reads public attributes of its room;
no function of this module runs between two readings.

Kafka has no MBean for the high watermark of a partition nor for the lag of each follower at the leader. They have the
names `kafka.log:type=Log,name=HighWatermark` and `kafka.cluster:type=Partition,name=ReplicaLag` (tag `replica`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from .register import Metric, MetricKind, Metrics, Sample

if TYPE_CHECKING:
    from ..controller import Controller
    from ..purgatory import Purgatory
    from ..registry import RegistryClient
    from ..replication import ReplicaManager
    from ..replication.partition import Partition
    from .request_times import RequestTimes


def _replica_manager(name: str, help_: str, kind: MetricKind = "gauge") -> Metric:
    return Metric(group="kafka.server", type="ReplicaManager", name=name, help=help_, kind=kind)


def _gauge(group: str, type_: str, name: str, help_: str) -> Metric:
    return Metric(group=group, type=type_, name=name, help=help_)


UNDER_REPLICATED = _replica_manager(
    "UnderReplicatedPartitions", "partitions led by this broker with replicas outside the ISR"
)
UNDER_MIN_ISR = _replica_manager(
    "UnderMinIsrPartitionCount", "partitions led by this broker whose ISR is smaller than min.insync.replicas"
)
AT_MIN_ISR = _replica_manager(
    "AtMinIsrPartitionCount", "partitions led by this broker whose ISR has exactly min.insync.replicas members"
)
LEADERS = _replica_manager("LeaderCount", "partitions led by this broker")
PARTITIONS = _replica_manager("PartitionCount", "replicas on this broker")
OFFLINE_REPLICAS = _replica_manager("OfflineReplicaCount", "replicas on this broker whose log has failed")
ISR_SHRINKS = _replica_manager("IsrShrinksPerSec", "shrinks of an ISR", "counter")
ISR_EXPANDS = _replica_manager("IsrExpandsPerSec", "expansions of an ISR", "counter")

LOG_END = _gauge("kafka.log", "Log", "LogEndOffset", "offset of the next record")
LOG_START = _gauge("kafka.log", "Log", "LogStartOffset", "first offset of the log")
LOG_SIZE = _gauge("kafka.log", "Log", "Size", "bytes of the log's segments")
HIGH_WATERMARK = _gauge("kafka.log", "Log", "HighWatermark", "first offset that consumers may not read yet")
IN_SYNC = _gauge("kafka.cluster", "Partition", "InSyncReplicasCount", "size of the ISR, reported by the leader")
REPLICAS = _gauge("kafka.cluster", "Partition", "ReplicasCount", "number of replicas, reported by the leader")
PARTITION_UNDER_REPLICATED = _gauge(
    "kafka.cluster", "Partition", "UnderReplicated", "1 while replicas are outside the ISR"
)
LAG = _gauge("kafka.cluster", "Partition", "ReplicaLag", "records that a follower lacks, reported by the leader")

ACTIVE = _gauge("kafka.controller", "KafkaController", "ActiveControllerCount", "1 on the active controller")
OFFLINE = _gauge("kafka.controller", "KafkaController", "OfflinePartitionsCount", "partitions without a leader")
IMBALANCE = _gauge(
    "kafka.controller",
    "KafkaController",
    "PreferredReplicaImbalanceCount",
    "partitions not led by their preferred replica",
)
TOPICS = _gauge("kafka.controller", "KafkaController", "GlobalTopicCount", "topics of the cluster")
ALL = _gauge("kafka.controller", "KafkaController", "GlobalPartitionCount", "partitions of the cluster")
TO_DELETE = _gauge("kafka.controller", "KafkaController", "TopicsToDeleteCount", "topics marked for deletion")
MOVING = _gauge("kafka.controller", "KafkaController", "ReassigningPartitions", "partitions being reassigned")
EVENTS = _gauge("kafka.controller", "ControllerEventManager", "EventQueueSize", "events that wait in the queue")

DELAYED = _gauge("kafka.server", "DelayedOperationPurgatory", "NumDelayedOperations", "operations that wait")
PURGATORY = _gauge("kafka.server", "DelayedOperationPurgatory", "PurgatorySize", "entries in the watch lists")
CONNECTIONS = _gauge("kafka.server", "socket-server-metrics", "connection-count", "open connections")
LOGINS, FAILED_LOGINS = (
    Metric(
        group="kafka.server",
        type="socket-server-metrics",
        name=f"{word}-authentication-total",
        help=help_,
        kind="counter",
    )
    for word, help_ in (("successful", "logins of clients"), ("failed", "logins that were refused or not completed"))
)
SESSION = _gauge("kafka.server", "SessionExpireListener", "SessionState", "1 while the registry session is connected")


def broker_metrics(
    *,
    replicas: ReplicaManager,
    controller: Controller,
    registry: RegistryClient,
    connections: Callable[[], Iterable[tuple[str, int]]],
    logins: Callable[[], Iterable[tuple[str, int, int]]],
    times: RequestTimes,
    purgatories: Callable[[], Iterable[Purgatory]],
) -> Metrics:
    """Returns the register of a broker, with a sample source for each of its rooms."""
    metrics = Metrics()
    metrics.add(lambda: _replication(replicas))
    metrics.add(lambda: _logs(replicas))
    metrics.add(lambda: _controller(controller.figures()))
    metrics.add(lambda: _purgatories(purgatories()))
    metrics.add(times.samples)
    metrics.add(
        lambda: (Sample(metric=CONNECTIONS, value=count, tags={"listener": name}) for name, count in connections())
    )
    metrics.add(lambda: _logins(logins()))
    metrics.gauge(SESSION, lambda: float(registry.state == "connected"))
    return metrics


def _logins(rows: Iterable[tuple[str, int, int]]) -> Iterator[Sample]:
    for listener, succeeded, failed in rows:
        tags = {"listener": listener}
        yield Sample(metric=LOGINS, value=succeeded, tags=tags)
        yield Sample(metric=FAILED_LOGINS, value=failed, tags=tags)


def _replication(replicas: ReplicaManager) -> Iterator[Sample]:
    hosted = list(replicas.partitions())
    led = [partition for partition in hosted if partition.is_leader]
    counts = {
        UNDER_REPLICATED: sum(_under_replicated(partition) for partition in led),
        UNDER_MIN_ISR: sum(partition.below_min_isr for partition in led),
        AT_MIN_ISR: sum(len(partition.isr) == partition.min_isr for partition in led),
        LEADERS: len(led),
        PARTITIONS: len(hosted),
        OFFLINE_REPLICAS: sum(partition.failed for partition in hosted),
        ISR_SHRINKS: replicas.isr_changes["shrink"],
        ISR_EXPANDS: replicas.isr_changes["expand"],
    }
    for metric, value in counts.items():
        yield Sample(metric=metric, value=value)


def _under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _logs(replicas: ReplicaManager) -> Iterator[Sample]:
    for partition in replicas.partitions():
        topic, number = partition.topic_partition
        tags = {"topic": topic, "partition": str(number)}
        log = partition.log
        yield Sample(metric=LOG_END, value=log.log_end_offset, tags=tags)
        yield Sample(metric=LOG_START, value=log.log_start_offset, tags=tags)
        yield Sample(metric=LOG_SIZE, value=log.size, tags=tags)
        yield Sample(metric=HIGH_WATERMARK, value=partition.high_watermark, tags=tags)
        if partition.is_leader:
            yield Sample(metric=IN_SYNC, value=len(partition.isr), tags=tags)
            yield Sample(metric=REPLICAS, value=len(partition.replicas), tags=tags)
            under = float(_under_replicated(partition))
            yield Sample(metric=PARTITION_UNDER_REPLICATED, value=under, tags=tags)
            for node, end in partition.remote_ends().items():
                lag = log.log_end_offset - max(end, 0)
                yield Sample(metric=LAG, value=lag, tags=tags | {"replica": str(node)})


def _controller(figures: Mapping[str, int]) -> Iterator[Sample]:
    named = {
        ACTIVE: "active",
        OFFLINE: "offline",
        IMBALANCE: "imbalance",
        TOPICS: "topics",
        ALL: "partitions",
        TO_DELETE: "to_delete",
        MOVING: "moving",
        EVENTS: "events",
    }
    for metric, name in named.items():
        yield Sample(metric=metric, value=figures.get(name, 0))


def _purgatories(purgatories: Iterable[Purgatory]) -> Iterator[Sample]:
    for purgatory in purgatories:
        tags = {"delayedOperation": purgatory.name}
        yield Sample(metric=DELAYED, value=purgatory.delayed, tags=tags)
        yield Sample(metric=PURGATORY, value=purgatory.watched, tags=tags)
