"""What a broker's rooms have to say, under Kafka's names (C10).

Owns: `broker_metrics`, which adds a source for each room. Rooms are read through their public attributes; nothing
here is called between two readings.

Kafka has no MBean for a partition's high watermark nor for a follower's lag at its leader; they are told as
`kafka.log:type=Log,name=HighWatermark` and `kafka.cluster:type=Partition,name=ReplicaLag` (tag `replica`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from .register import Kind, Metric, Metrics, Sample

if TYPE_CHECKING:
    from ..controller import Controller
    from ..purgatory import Purgatory
    from ..registry import RegistryClient
    from ..replication import ReplicaManager
    from ..replication.partition import Partition
    from .request_times import RequestTimes


def _replica_manager(name: str, help_: str, kind: Kind = "gauge") -> Metric:
    return Metric(group="kafka.server", type="ReplicaManager", name=name, help=help_, kind=kind)


def _of(group: str, type_: str, name: str, help_: str) -> Metric:
    return Metric(group=group, type=type_, name=name, help=help_)


UNDER_REPLICATED = _replica_manager(
    "UnderReplicatedPartitions", "led here, with replicas outside the ISR"
)
UNDER_MIN_ISR = _replica_manager(
    "UnderMinIsrPartitionCount", "led here, with fewer in sync than min.insync.replicas"
)
AT_MIN_ISR = _replica_manager("AtMinIsrPartitionCount", "led here, with just min.insync.replicas")
LEADERS = _replica_manager("LeaderCount", "partitions led here")
PARTITIONS = _replica_manager("PartitionCount", "replicas here")
OFFLINE_REPLICAS = _replica_manager("OfflineReplicaCount", "replicas here whose log has failed")
ISR_SHRINKS = _replica_manager("IsrShrinksPerSec", "ISRs that became smaller", "counter")
ISR_EXPANDS = _replica_manager("IsrExpandsPerSec", "ISRs that became larger", "counter")

LOG_END = _of("kafka.log", "Log", "LogEndOffset", "offset of the next record")
LOG_START = _of("kafka.log", "Log", "LogStartOffset", "first offset that is kept")
LOG_SIZE = _of("kafka.log", "Log", "Size", "bytes of its segments")
HIGH_WATERMARK = _of("kafka.log", "Log", "HighWatermark", "first offset consumers may not read yet")
IN_SYNC = _of("kafka.cluster", "Partition", "InSyncReplicasCount", "size of the ISR, by its leader")
REPLICAS = _of("kafka.cluster", "Partition", "ReplicasCount", "replicas, by the leader")
PARTITION_UNDER_REPLICATED = _of(
    "kafka.cluster", "Partition", "UnderReplicated", "1 while replicas are outside the ISR"
)
LAG = _of("kafka.cluster", "Partition", "ReplicaLag", "records a follower lacks, by its leader")

ACTIVE = _of("kafka.controller", "KafkaController", "ActiveControllerCount", "1 on the controller")
OFFLINE = _of(
    "kafka.controller", "KafkaController", "OfflinePartitionsCount", "partitions without a leader"
)
IMBALANCE = _of(
    "kafka.controller",
    "KafkaController",
    "PreferredReplicaImbalanceCount",
    "partitions not led by their preferred replica",
)
TOPICS = _of("kafka.controller", "KafkaController", "GlobalTopicCount", "topics of the cluster")
ALL = _of(
    "kafka.controller", "KafkaController", "GlobalPartitionCount", "partitions of the cluster"
)
TO_DELETE = _of(
    "kafka.controller", "KafkaController", "TopicsToDeleteCount", "topics marked for deletion"
)
MOVING = _of(
    "kafka.controller", "KafkaController", "ReassigningPartitions", "partitions being reassigned"
)
EVENTS = _of("kafka.controller", "ControllerEventManager", "EventQueueSize", "events that wait")

DELAYED = _of(
    "kafka.server", "DelayedOperationPurgatory", "NumDelayedOperations", "operations that wait"
)
PURGATORY = _of(
    "kafka.server", "DelayedOperationPurgatory", "PurgatorySize", "entries in their watch lists"
)
CONNECTIONS = _of("kafka.server", "socket-server-metrics", "connection-count", "open connections")
SESSION = _of(
    "kafka.server", "SessionExpireListener", "SessionState", "1 while the registry answers"
)


def broker_metrics(
    *,
    replicas: ReplicaManager,
    controller: Controller,
    registry: RegistryClient,
    connections: Callable[[], Iterable[tuple[str, int]]],
    times: RequestTimes,
    purgatories: Callable[[], Iterable[Purgatory]],
) -> Metrics:
    """The register of one broker."""
    metrics = Metrics()
    metrics.add(lambda: _replication(replicas))
    metrics.add(lambda: _logs(replicas))
    metrics.add(lambda: _controller(controller.figures()))
    metrics.add(lambda: _purgatories(purgatories()))
    metrics.add(times.samples)
    metrics.add(
        lambda: (
            Sample(metric=CONNECTIONS, value=count, tags={"listener": name})
            for name, count in connections()
        )
    )
    metrics.gauge(SESSION, lambda: float(registry.state == "connected"))
    return metrics


def _replication(replicas: ReplicaManager) -> Iterator[Sample]:
    hosted = list(replicas.partitions())
    led = [one for one in hosted if one.is_leader]
    counts = {
        UNDER_REPLICATED: sum(_under_replicated(one) for one in led),
        UNDER_MIN_ISR: sum(one.below_min_isr for one in led),
        AT_MIN_ISR: sum(len(one.isr) == one.min_isr for one in led),
        LEADERS: len(led),
        PARTITIONS: len(hosted),
        OFFLINE_REPLICAS: sum(one.failed for one in hosted),
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
        ACTIVE: "active", OFFLINE: "offline", IMBALANCE: "imbalance", TOPICS: "topics", ALL: "partitions",
        TO_DELETE: "to_delete", MOVING: "moving", EVENTS: "events",
    }  # fmt: skip
    for metric, name in named.items():
        yield Sample(metric=metric, value=figures.get(name, 0))


def _purgatories(purgatories: Iterable[Purgatory]) -> Iterator[Sample]:
    for purgatory in purgatories:
        tags = {"delayedOperation": purgatory.name}
        yield Sample(metric=DELAYED, value=purgatory.delayed, tags=tags)
        yield Sample(metric=PURGATORY, value=purgatory.watched, tags=tags)
