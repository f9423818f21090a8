"""The shards of one coordinator on this broker: loaded when leadership begins, unloaded when it ends (G3).

A shard is the state of one partition of the coordinator's internal topic, with the state machine that it feeds.

Owns: which partitions of the internal topic are coordinated here, and in which state. Invariants:

* a partition has at most one shard that is not unloaded;
* `active` returns a state machine only while its shard is ACTIVE;
* a new leader epoch within one generation keeps the shard: the log was not truncated, so the state is still what the
  log says. A generation is the time in which one `Partition` object leads without a break; a topic that is created
  again has a new object;
* a shard whose log cannot be read is unloaded (NOT_COORDINATOR until leadership moves), never served without its past.

Source: Kafka's CoordinatorRuntime (scheduleLoadOperation, scheduleUnloadOperation) and CoordinatorLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host
from ..host.seam.failpoints import BEFORE_ACTIVE, BEFORE_LOAD, passes
from ..internal_topics import InternalTopic, partition_for
from ..purgatory import PurgatoryTimer
from .loader import ShardLoader
from .shard import Shard, ShardState
from .state_machine import StateMachine
from .timers import ShardTimers
from .writer import PartitionWriter

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from .replicas import LedPartition, Replicas

M = TypeVar("M", bound=StateMachine)


class HostedShard(NamedTuple, Generic[M]):
    """A shard and its state machine."""

    shard: Shard
    machine: M


class PartitionCounts(Protocol):
    """What the runtime needs of the metadata cache."""

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic; 0 where it does not exist."""
        ...


class CoordinatorRuntime(Generic[M]):
    """Hosts a state machine over the partitions of one internal topic that this broker leads."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        topic: InternalTopic,
        replicas: Replicas,
        metadata: PartitionCounts,
        *,
        write_timeout_ms: int,
        factory: Callable[[Shard], M],
    ) -> None:
        self.topic = topic
        self.timer = PurgatoryTimer(host)
        """The timing wheel of all shards; state machines may share it for purgatories of their own."""
        self._host = host
        self._config = config
        self._replicas = replicas
        self._metadata = metadata
        self._factory = factory
        self._writer = PartitionWriter(host, topic.name, replicas, write_timeout_ms)
        self._hosted: dict[int, HostedShard[M]] = {}

    # ---- serving ---------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Partitions of the topic: as it was created, or as configured before it exists."""
        created = self._metadata.partition_count(self.topic.name)
        return created or self.topic.partitions(self._config)

    def partition_of(self, key: str) -> int:
        """The partition whose leader coordinates `key`."""
        return partition_for(key, self.partition_count())

    def active(self, key: str) -> M:
        """The state machine that serves `key`; KafkaError when it is not here or still loading."""
        hosted = self._hosted.get(self.partition_of(key))
        if hosted is None:
            raise KafkaError(ErrorCode.not_coordinator, f"this broker does not coordinate {key!r}: find it again")
        if hosted.shard.state is ShardState.LOADING:
            raise KafkaError(ErrorCode.coordinator_load_in_progress, f"{hosted.shard.topic_partition} is loading")
        assert hosted.shard.is_active, f"{hosted.shard.topic_partition} is hosted and unloaded"
        return hosted.machine

    def is_hosted(self, key: str) -> bool:
        """True when this broker coordinates `key`, loading or active."""
        return self.partition_of(key) in self._hosted

    def hosted(self, partition: int) -> HostedShard[M] | None:
        """The shard of a partition, loading or active, and its state machine."""
        return self._hosted.get(partition)

    def all_active(self) -> list[M]:
        """Every state machine that is loaded, in the order in which the loads began."""
        return [hosted.machine for hosted in self._hosted.values() if hosted.shard.is_active]

    @property
    def any_loading(self) -> bool:
        """True while a shard is loading."""
        return any(hosted.shard.state is ShardState.LOADING for hosted in self._hosted.values())

    # ---- leadership ------------------------------------------------------------------------------

    def leadership_changed(
        self, became_leader: Iterable[LedPartition], became_follower: Iterable[LedPartition]
    ) -> None:
        """Unload what this broker leads no longer, load what it leads now."""
        for partition in became_follower:
            if partition.topic_partition.topic == self.topic.name:
                self._unload(partition.topic_partition.partition)
        for partition in became_leader:
            if partition.topic_partition.topic == self.topic.name:
                self._begin_load(partition)

    def close(self) -> None:
        """Unload everything; no timer runs any more."""
        for partition in list(self._hosted):
            self._unload(partition)
        self.timer.close()

    def _begin_load(self, partition: LedPartition) -> None:
        number = partition.topic_partition.partition
        hosted = self._hosted.get(number)
        if hosted is not None and hosted.shard.is_of_generation(partition):
            return
        self._unload(number)
        shard = Shard(partition, self._writer, ShardTimers(self.timer))
        hosted = HostedShard(shard, self._factory(shard))
        self._hosted[number] = hosted
        self._host.tasks.spawn(self._load(hosted, partition), name=f"load-{self.topic.name}-{number}")

    async def _load(self, hosted: HostedShard[M], partition: LedPartition) -> None:
        shard, machine = hosted
        started_ms = self._host.clock.monotonic_ms()
        loader = ShardLoader(self._host, self._replicas.produces, shard, partition, machine)
        host, tp = self._host, partition.topic_partition
        passes(host.failpoints, host.trace, BEFORE_LOAD, tp)
        try:
            complete = await loader.load()
        except (HarrowError, OSError) as error:
            self._host.trace.log("error", f"{partition.topic_partition}: not loaded: {error}")
            if shard.state is not ShardState.UNLOADED:
                self._unload(shard.number)
            return
        if not complete or shard.state is ShardState.UNLOADED:
            return
        assert self._hosted.get(shard.number) is hosted, f"{shard.topic_partition}: two shards"
        passes(host.failpoints, host.trace, BEFORE_ACTIVE, tp)
        shard.activate()
        machine.loaded(self._host.clock.monotonic_ms() - started_ms)

    def _unload(self, number: int) -> None:
        hosted = self._hosted.pop(number, None)
        if hosted is None:
            return
        hosted.shard.unload()
        hosted.machine.unload()
        hosted.shard.fail_writes()
