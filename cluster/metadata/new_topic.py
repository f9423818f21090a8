"""New topics: what a request may leave open, and the rules that a topic must satisfy.

Owns: `NewTopic` (requested), `TopicPlan` (to be created), `TopicPlanner`, which makes one of the other. Nothing here
writes.

May fail: KafkaError with Kafka's codes. Source: Apache Kafka's `ZkAdminManager.createTopics`, `AdminZkClient`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..config import BrokerConfig
from ..controller.assignment import assign_replicas
from ..controller.topic_node import ReplicaAssignment
from ..controller.topic_node import topic_json as assignment_json
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import NodeId
from ..topic_names import CLUSTER_METADATA, check_topic_name, colliding_names
from ..wire.topic_ids import UUID, draw_topic_id
from .cache import MetadataCache
from .config_store import checked_topic_config

__all__ = ["NewTopic", "TopicPlan", "TopicPlanner", "already_exists", "check_plans", "check_request", "prohibited"]

UNSET = -1
REQUEST_MOST = 10_000
"""How many partitions a request may create, and how many entries: topics, their settings and their partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as it is requested; -1 leaves a number to the broker's settings.

    `assignment` (partition to replicas) excludes both numbers.
    """

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignment: Mapping[int, Sequence[NodeId]] | None = None
    assigned_twice: bool = False
    """Whether the request assigned a partition more than once."""
    config: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic as it will be created: every number known and every replica placed."""

    name: str
    topic_id: UUID
    assignment: Mapping[int, Sequence[NodeId]]
    config: Mapping[str, str]

    def to_json(self) -> str:
        """The data of `/brokers/topics/T`."""
        rows = {number: ReplicaAssignment(replicas=tuple(nodes)) for number, nodes in self.assignment.items()}
        return assignment_json(self.topic_id, rows)

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        """How many replicas its first partition has; manual assignments have the same for all."""
        return len(self.assignment[0])


class TopicPlanner:
    """Completes and validates requested topics."""

    def __init__(self, host: Host, cache: MetadataCache, config: BrokerConfig) -> None:
        self._random = host.random
        self._cache = cache
        self._config = config

    def plan(self, requested: NewTopic) -> TopicPlan:
        """Complete and validate a requested topic against the metadata cache; KafkaError says why it is refused."""
        if requested.name == CLUSTER_METADATA:
            raise prohibited(requested.name)
        check_topic_name(requested.name)
        if self._cache.topic(requested.name) is not None:
            raise already_exists(requested.name)
        clash = colliding_names(requested.name, (topic.name for topic in self._cache.topics()))
        if clash:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{requested.name}' collides with existing topics: {', '.join(clash)}",
            )
        config = checked_topic_config(requested.config, self._config)
        place = self._assigned if requested.assignment is None else self._manual
        return TopicPlan(
            name=requested.name, topic_id=self._unused_topic_id(), assignment=place(requested), config=config
        )

    def _unused_topic_id(self) -> UUID:
        """An id that no topic has: the random numbers of a seeded host may repeat."""
        while True:
            drawn = draw_topic_id(self._random)
            if self._cache.topic_by_id(drawn) is None:
                return drawn

    def _assigned(self, requested: NewTopic) -> Mapping[int, Sequence[NodeId]]:
        partitions, factor = requested.partitions, requested.replication_factor
        if partitions == UNSET:
            partitions = self._config.number("num.partitions")
        if factor == UNSET:
            factor = self._config.number("default.replication.factor")
        if factor <= 0:
            raise KafkaError(
                ErrorCode.invalid_replication_factor, f"Replication factor must be larger than 0, not {factor}."
            )
        if partitions <= 0:
            raise KafkaError(
                ErrorCode.invalid_partitions, f"Number of partitions must be larger than 0, not {partitions}."
            )
        self._check_brokers(factor)
        racks = {broker.node_id: broker.rack for broker in self._cache.brokers()}
        draw = self._random.randrange
        return assign_replicas(
            [*racks], partitions, factor, start=draw(len(racks)), shift=draw(len(racks)), racks=racks
        )

    def _check_brokers(self, factor: int) -> None:
        alive = len(self._cache.brokers())
        if factor > alive:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"Replication factor: {factor} larger than available brokers: {alive}.",
            )

    def _manual(self, requested: NewTopic) -> Mapping[int, Sequence[NodeId]]:
        assignment = requested.assignment or {}
        if requested.partitions != UNSET or requested.replication_factor != UNSET:
            raise KafkaError(
                ErrorCode.invalid_request,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        if requested.assigned_twice:
            raise _bad_assignment("a partition is assigned more than once")
        if sorted(assignment) != list(range(len(assignment))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        factor = len(assignment[0])
        for partition, replicas in assignment.items():
            if not replicas or len(replicas) != factor:
                raise _bad_assignment(f"partition {partition} has {len(replicas)} replicas")
            if len(set(replicas)) != len(replicas):
                raise _bad_assignment(f"duplicate replica for partition {partition}: {[*replicas]}")
            dead = [node_id for node_id in replicas if not self._cache.is_alive(node_id)]
            if dead:
                raise _bad_assignment(f"partition {partition} names brokers not alive: {dead}")
        return assignment


def check_request(requested: Iterable[NewTopic], default_partitions: int) -> None:
    """KafkaError(policy_violation) when the topics of a request have too many partitions together.

    Called before any of them is planned, because a plan costs memory and time for each partition.
    """
    total = 0
    for topic in requested:
        count = topic.partitions if topic.assignment is None else len(topic.assignment)
        total += default_partitions if count == UNSET else max(0, count)
    if total > REQUEST_MOST:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Excessively large number of partitions per request: {total}, the most is "
            f"{REQUEST_MOST}. Create fewer topics with a request.",
        )


def check_plans(plans: Iterable[TopicPlan]) -> None:
    """KafkaError(policy_violation) when the topics, their settings and their partitions are too many together."""
    entries = sum(1 + len(plan.config) + plan.partitions for plan in plans)
    if entries > REQUEST_MOST:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"Unable to perform excessively large batch operation: {entries} topics, settings and "
            f"partitions, the most is {REQUEST_MOST}. Create fewer topics with a request.",
        )


def prohibited(name: str) -> KafkaError:
    """The refusal of `__cluster_metadata`."""
    return KafkaError(ErrorCode.invalid_request, f"Creation of internal topic {name} is prohibited.")


def already_exists(name: str) -> KafkaError:
    """The refusal of a topic whose name is taken."""
    return KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _bad_assignment(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_replica_assignment, f"Invalid replica assignment: {problem}.")
