"""The metadata cache: one broker's copy of the live brokers, topics and leaders.

Owns: `MetadataCache`, filled by UpdateMetadata. Each request carries all live brokers and the partitions that changed;
a partition whose leader is -2 is removed. Readers see the changes of a request all at once: everything runs on the
broker's loop and `update` never awaits.

Invariants: `controller_epoch` never goes back; a topic id names at most one topic, and a topic that arrives with
a new id loses the partitions of its old id.
May fail: `update` refuses a stale controller or broker epoch with KafkaError (D2, D6).

Source: Apache Kafka's `ZkMetadataCache`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import ErrorCode, KafkaError
from ..host.seam import Host, Promise
from ..ids import NO_NODE, BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from ..internal_topics import INTERNAL_TOPICS
from ..listeners import Address
from ..purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from ..wire.internal import (
    FULL,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ..wire.topic_ids import UUID

__all__ = ["LEADER_DURING_DELETE", "LiveBroker", "MetadataCache", "PartitionInfo", "TopicInfo"]

LEADER_DURING_DELETE = NodeId(-2)
"""The leader that UpdateMetadata gives to the partitions of a topic that is being deleted."""

_CACHE = "metadata-cache"
_FOR_EVER_MS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """A registered broker, with the advertised address of each of its listeners."""

    node_id: NodeId
    addresses: Mapping[str, Address]
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition as the controller last sent it; `leader` is -1 while it has no leader."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    replicas: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]
    version: int


@dataclass(slots=True, kw_only=True)
class TopicInfo:
    """One topic; `topic_id` is None only when the controller sent none."""

    name: str
    topic_id: UUID | None
    partitions: dict[int, PartitionInfo] = field(default_factory=dict[int, PartitionInfo])

    @property
    def is_internal(self) -> bool:
        """True for internal topics."""
        return self.name in INTERNAL_TOPICS


class DelayedUntil(DelayedOperation):
    """Waits for a condition on the cache: Kafka's DelayedCreatePartitions, DelayedElectLeader."""

    __slots__ = ("_condition", "_holds", "result")

    def __init__(self, result: Promise[bool], condition: Callable[[], bool], deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.result = result
        self._condition = condition
        self._holds = False

    def try_complete(self) -> bool:
        """Complete when the condition holds."""
        self._holds = self._condition()
        return self._holds and self.force_complete()

    def on_complete(self) -> None:
        """Complete the promise: True when the condition holds, False after the timeout."""
        if not self.result.done():
            self.result.set_result(self._holds or self._condition())

    def on_expiration(self) -> None:
        """Nothing more."""

    def cancelled(self) -> None:
        """The caller no longer waits."""
        self.force_complete()


class MetadataCache:
    """One broker's copy of the cluster's metadata."""

    def __init__(self, host: Host, node_id: NodeId, inter_broker_listener: str) -> None:
        self.node_id = node_id
        self._inter_broker_listener = inter_broker_listener
        self.broker_epoch = BrokerEpoch(-1)
        """Epoch of this broker's registration; requests for an older one are refused. -1: not yet registered."""
        self.controller_id = NO_NODE
        self.controller_epoch = ControllerEpoch(-1)
        self.cluster_id: str | None = None
        self.on_update: list[Callable[[], None]] = []
        """Called after each update."""
        self.on_deleted: list[Callable[[list[TopicPartition]], None]] = []
        """Called with the partitions that an update removed."""
        self.on_assigned_elsewhere: list[Callable[[TopicPartition, UUID | None, int], None]] = []
        """Called for each partition of an update without a replica on this broker: topic id and leader epoch."""
        self._tasks = host.tasks
        self._clock = host.clock
        self._brokers: dict[NodeId, LiveBroker] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        self.topic_purgatory = Purgatory("topic", PurgatoryTimer(host))
        """Operations that wait for a change of the cache: creations, deletions, elections (E5)."""

    # --------------------------------------------------------------- reading

    def brokers(self) -> list[LiveBroker]:
        """The live brokers, by id."""
        return [self._brokers[node_id] for node_id in sorted(self._brokers)]

    def broker(self, node_id: NodeId) -> LiveBroker | None:
        """A live broker; None for any other id."""
        return self._brokers.get(node_id)

    def is_alive(self, node_id: NodeId) -> bool:
        """True for a live broker."""
        return node_id in self._brokers

    def address(self, node_id: NodeId, listener: str) -> Address | None:
        """The advertised address of a live broker's listener; None where it has no such listener."""
        found = self._brokers.get(node_id)
        return None if found is None else found.addresses.get(listener)

    def peer_endpoint(self, node_id: NodeId) -> Address | None:
        """The address of a live broker's inter-broker listener."""
        return self.address(node_id, self._inter_broker_listener)

    def topics(self) -> Iterable[TopicInfo]:
        """Every topic, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def topic_names(self) -> Iterable[str]:
        """The name of every topic."""
        return self._topics.keys()

    def topic(self, name: str) -> TopicInfo | None:
        """A topic by its name."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID | None) -> TopicInfo | None:
        """A topic by its id."""
        name = self._names.get(topic_id) if topic_id is not None else None
        return None if name is None else self._topics.get(name)

    def topic_name(self, topic_id: UUID | None) -> str | None:
        """The name that belongs to a topic id."""
        return self._names.get(topic_id) if topic_id is not None else None

    def topic_id(self, name: str) -> UUID | None:
        """The id that belongs to a topic's name."""
        found = self._topics.get(name)
        return None if found is None else found.topic_id

    def topic_ids(self) -> Mapping[UUID, str]:
        """The name of every topic, by its id."""
        return self._names

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """One partition."""
        found = self._topics.get(tp.topic)
        return None if found is None else found.partitions.get(tp.partition)

    def partition_count(self, topic: str) -> int:
        """How many partitions are known; 0 for an unknown topic."""
        found = self._topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def leader(self, tp: TopicPartition) -> NodeId:
        """The leader of a partition; -1 when it has none or is not known."""
        found = self.partition(tp)
        return NO_NODE if found is None else found.leader

    # -------------------------------------------------------------- updating

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Apply an UpdateMetadata request; returns the partitions that it removed.

        KafkaError(stale_broker_epoch): the request is for an earlier registration of this broker (KIP-380).
        KafkaError(stale_controller_epoch): the sender is no longer the controller.
        """
        if -1 < request.broker_epoch < self.broker_epoch:
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"broker epoch {request.broker_epoch}, but this broker's is {self.broker_epoch}",
            )
        if request.controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.stale_controller_epoch,
                f"controller epoch {request.controller_epoch}, after {self.controller_epoch}",
            )
        assert request.controller_epoch >= self.controller_epoch, "fenced above"
        self.controller_epoch = ControllerEpoch(request.controller_epoch)
        self.controller_id = NodeId(request.controller_id)
        self._brokers = {NodeId(row.id): _live_broker(row) for row in request.live_brokers}
        removed: list[TopicPartition] = []
        if request.type == FULL:
            listed = {row.topic_name for row in request.topic_states}
            for name in [name for name in self._topics if name not in listed]:
                removed += self._remove_topic(name)
        for row in request.topic_states:
            removed += self._update_topic(row)
        self._notify_assigned_elsewhere(request)
        self._notify(removed)
        return removed

    def _notify_assigned_elsewhere(self, request: UpdateMetadataRequest) -> None:
        for topic in request.topic_states:
            for row in topic.partition_states:
                if self.node_id in row.replicas or row.leader == LEADER_DURING_DELETE:
                    continue
                tp = TopicPartition(topic.topic_name, row.partition_index)
                for call_elsewhere in self.on_assigned_elsewhere:
                    call_elsewhere(tp, topic.topic_id, row.leader_epoch)

    def _update_topic(self, state: UpdateMetadataTopicState) -> list[TopicPartition]:
        name = state.topic_name
        topic = self._topics.get(name)
        removed: list[TopicPartition] = []
        if topic is not None and state.topic_id is not None and topic.topic_id != state.topic_id:
            removed += self._remove_topic(name)
            topic = None
        if topic is None:
            topic = TopicInfo(name=name, topic_id=state.topic_id)
        for row in state.partition_states:
            if row.leader != LEADER_DURING_DELETE:
                topic.partitions[row.partition_index] = _partition_info(row)
            elif topic.partitions.pop(row.partition_index, None) is not None:
                removed.append(TopicPartition(name, row.partition_index))
        if topic.partitions:
            self._topics[name] = topic
            if topic.topic_id is not None:
                self._names[topic.topic_id] = name
        else:
            self._remove_topic(name)
        return removed

    def _remove_topic(self, name: str) -> list[TopicPartition]:
        topic = self._topics.pop(name, None)
        if topic is None:
            return []
        if topic.topic_id is not None:
            self._names.pop(topic.topic_id, None)
        return [TopicPartition(name, partition) for partition in topic.partitions]

    def _notify(self, removed: list[TopicPartition]) -> None:
        if removed:
            for call_deleted in self.on_deleted:
                call_deleted(removed)
        for call_updated in self.on_update:
            call_updated()
        self.topic_purgatory.check_all()

    # --------------------------------------------------------------- waiting

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float | None) -> bool:
        """Wait until `condition` holds, evaluated after each update; False after `timeout_ms`."""
        op = DelayedUntil(self._tasks.promise(), condition, self._deadline_ms(timeout_ms))
        if self.topic_purgatory.try_complete_else_watch(op, (_CACHE,)):
            return True
        try:
            return await op.result
        except BaseException:
            op.cancelled()
            raise

    def _deadline_ms(self, timeout_ms: float | None) -> int:
        wait_ms = _FOR_EVER_MS if timeout_ms is None else math.ceil(max(0, timeout_ms))
        return self._clock.monotonic_ms() + wait_ms

    async def await_brokers(self, count: int) -> None:
        """Wait until `count` live brokers are in the cache, this one among them."""
        await self.await_until(lambda: len(self._brokers) >= count and self.node_id in self._brokers, None)

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float) -> bool:
        """Wait until each partition of a topic has a live leader; False after the timeout."""
        return await self.await_until(lambda: self._has_leaders(topic, partitions), timeout_ms)

    def without_leader(self, topic: str, partitions: int) -> list[int]:
        """Which of the first `partitions` partitions of a topic have no live leader, or are not known here."""
        known = self._topics[topic].partitions if topic in self._topics else {}
        return [
            number for number in range(partitions) if number not in known or known[number].leader not in self._brokers
        ]

    async def await_absence(self, topic: str, timeout_ms: float) -> bool:
        """Wait until a topic is removed; False after the timeout."""
        return await self.await_until(lambda: topic not in self._topics, timeout_ms)

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        known: Mapping[int, PartitionInfo] = self._topics[topic].partitions if topic in self._topics else {}
        return len(known) >= partitions and all(row.leader in self._brokers for row in known.values())


def _live_broker(row: UpdateMetadataBroker) -> LiveBroker:
    addresses = {endpoint.listener.upper(): Address(endpoint.host, endpoint.port) for endpoint in row.endpoints}
    return LiveBroker(node_id=NodeId(row.id), addresses=addresses, rack=row.rack)


def _partition_info(row: UpdateMetadataPartitionState) -> PartitionInfo:
    return PartitionInfo(
        leader=row.leader,
        leader_epoch=row.leader_epoch,
        isr=row.isr,
        replicas=row.replicas,
        offline=row.offline_replicas,
        version=row.zk_version,
    )
