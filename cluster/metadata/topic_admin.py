"""What creates, deletes and configures topics: writes to the registry, which the controller watches.

Owns: the registry nodes `/brokers/topics/T`, `/config/topics/T`, `/admin/delete_topics/T` and
`/config/changes/…` as writers (JSON as Apache Kafka 3.9's in ZooKeeper), the rules that a new topic must
keep, and auto-creation. Leaders are the controller's to elect; who needs them waits on the cache.

Invariants: a topic and its settings appear together (one multi-operation); a topic node is never
overwritten here.
May fail: KafkaError with the code that Kafka answers, RegistryError when the registry is out of reach.

Source: Apache Kafka's `AdminZkClient`, `ZkAdminManager`, `AutoTopicCreationManager`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..config import BY_NAME, BrokerConfig, validate_topic_config
from ..controller.assignment import assign_replicas
from ..controller.topic_node import ReplicaAssignment
from ..controller.topic_node import topic_json as assignment_json
from ..errors import ConfigError, ErrorCode, HarrowError, KafkaError, RegistryError
from ..host.seam import Host
from ..ids import NodeId
from ..registry import (
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
    Set,
)
from ..registry.paths import (
    CLUSTER_ID,
    CONFIG_CHANGE,
    TOPIC_CONFIGS,
    TOPICS,
    config_path,
    deletion_path,
    entity_config_path,
    topic_path,
)
from ..wire.topic_ids import UUID, draw_topic_id, text_of
from .cache import MetadataCache
from .config_changes import DEFAULT_BROKER
from .config_entries import is_dynamic
from .names import OFFSETS_TOPIC, check_topic_name, colliding_names

__all__ = ["NewTopic", "TopicAdmin", "TopicPlan", "refusal_of"]

T = TypeVar("T")

UNSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as it is asked for; -1 leaves a number to the broker's settings.

    `assignment` (partition to its replicas) excludes both numbers.
    """

    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignment: Mapping[int, Sequence[NodeId]] | None = None
    config: Mapping[str, str | None] = field(default_factory=dict[str, str | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic as it will be: every number settled and every replica placed."""

    name: str
    topic_id: UUID
    assignment: Mapping[int, Sequence[NodeId]]
    config: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        return len(self.assignment)

    @property
    def replication_factor(self) -> int:
        """How many replicas its first partition has; manual assignments have the same for all."""
        return len(self.assignment[0])


class TopicAdmin:
    """Topics, from one broker's side."""

    def __init__(
        self, host: Host, registry: RegistryClient, cache: MetadataCache, config: BrokerConfig
    ) -> None:
        self._host = host
        self._registry = registry
        self._cache = cache
        self._config = config
        self._creating: set[str] = set()

    # -------------------------------------------------------------- creation

    def plan(self, asked: NewTopic) -> TopicPlan:
        """Settle what is asked for against what the cache knows; KafkaError says why it cannot be."""
        check_topic_name(asked.name)
        if self._cache.topic(asked.name) is not None:
            raise _exists(asked.name)
        clash = colliding_names(asked.name, (topic.name for topic in self._cache.topics()))
        if clash:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"Topic '{asked.name}' collides with existing topics: {', '.join(clash)}",
            )
        config = _checked_config(asked.config)
        place = self._assigned if asked.assignment is None else self._manual
        return TopicPlan(
            name=asked.name,
            topic_id=self._fresh_topic_id(),
            assignment=place(asked),
            config=config,
        )

    def _fresh_topic_id(self) -> UUID:
        """An id that no topic has, whatever a seeded host draws."""
        while True:
            drawn = draw_topic_id(self._host.random)
            if self._cache.topic_by_id(drawn) is None:
                return drawn

    def _assigned(self, asked: NewTopic) -> Mapping[int, Sequence[NodeId]]:
        partitions, factor = asked.partitions, asked.replication_factor
        if partitions == UNSET:
            partitions = self._config.number("num.partitions")
        if factor == UNSET:
            factor = self._config.number("default.replication.factor")
        if partitions <= 0:
            raise KafkaError(
                ErrorCode.invalid_partitions,
                f"Number of partitions must be larger than 0, not {partitions}.",
            )
        self._check_factor(factor)
        racks = {broker.node_id: broker.rack for broker in self._cache.brokers()}
        draw = self._host.random.randrange
        return assign_replicas(
            [*racks],
            partitions,
            factor,
            start=draw(len(racks)),
            shift=draw(len(racks)),
            racks=racks,
        )

    def _check_factor(self, factor: int) -> None:
        if factor <= 0:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"Replication factor must be larger than 0, not {factor}.",
            )
        alive = len(self._cache.brokers())
        if factor > alive:
            raise KafkaError(
                ErrorCode.invalid_replication_factor,
                f"Replication factor: {factor} larger than available brokers: {alive}.",
            )

    def _manual(self, asked: NewTopic) -> Mapping[int, Sequence[NodeId]]:
        assignment = asked.assignment or {}
        if asked.partitions != UNSET or asked.replication_factor != UNSET:
            raise KafkaError(
                ErrorCode.invalid_request,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
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

    async def create(self, plan: TopicPlan) -> None:
        """Write a planned topic; KafkaError(topic_already_exists) when another was first."""
        topic = Create(topic_path(plan.name), topic_json(plan))
        overrides, config = config_path(plan.name), config_json(plan.config)
        for _ in range(3):
            try:
                await self._registry.multi([Create(overrides, config), topic])
                return
            except NoNodeError:
                await self._make_parents()
            except NodeExistsError:
                if await self._registry.exists(topic.path) is not None:
                    raise _exists(plan.name) from None
                if await self._replace_config_and_create(overrides, config, topic):
                    return
        raise KafkaError(
            ErrorCode.unknown_server_error, f"the registry nodes of {plan.name} keep changing"
        )

    async def _replace_config_and_create(self, path: str, config: str, topic: Create) -> bool:
        """Settings that an older topic left behind are replaced; False when they changed meanwhile."""
        try:
            await self._registry.multi([Set(path, config), topic])
        except (NoNodeError, NodeExistsError):
            return False
        return True

    async def _make_parents(self) -> None:
        for path in (TOPICS, TOPIC_CONFIGS):
            await self._registry.ensure(path)

    async def ensure_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> None:
        """Create a topic unless it exists, and wait until this broker's cache has it.

        KafkaError(invalid_replication_factor) while fewer brokers are alive than it wants replicas.
        """
        asked = NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, config=config
        )
        try:
            await self.create(self.plan(asked))
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
        await self._cache.await_until(
            lambda: self._cache.partition_count(name) > 0,
            self._config.number("request.timeout.ms"),
        )

    def auto_create(self, name: str) -> ErrorCode:
        """Begin to create a topic that a client named; returns what to answer meanwhile.

        leader_not_available: it is under way. Another code: why it cannot be.
        """
        asked = self._auto_topic(name)
        if name in self._creating:
            return ErrorCode.leader_not_available
        try:
            plan = self.plan(asked)
        except KafkaError as error:
            return error.code
        self._creating.add(name)
        self._host.tasks.spawn(self._auto_create(plan), name=f"create-{name}")
        return ErrorCode.leader_not_available

    def _auto_topic(self, name: str) -> NewTopic:
        if name == OFFSETS_TOPIC:
            return NewTopic(
                name=name,
                partitions=self._config.number("offsets.topic.num.partitions"),
                replication_factor=self._config.number("offsets.topic.replication.factor"),
                config={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self._config.number("offsets.topic.segment.bytes")),
                },
            )
        return NewTopic(name=name)

    async def _auto_create(self, plan: TopicPlan) -> None:
        try:
            await self.create(plan)
            await self._cache.await_until(
                lambda: self._cache.partition_count(plan.name) > 0,
                self._config.number("request.timeout.ms"),
            )
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                self._host.trace.log("warning", f"auto-creation of {plan.name}: {error}")
        except HarrowError as error:
            # the client asks again, and that begins it anew
            self._host.trace.log("warning", f"auto-creation of {plan.name}: {error}")
        finally:
            self._creating.discard(plan.name)

    async def reaching(self, order: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        """`order`, held back while this broker has no link to the registry, as Kafka's client of it does.

        RegistryUnavailableError once `timeout_ms` have passed, or when the link was lost under way: what the
        order has done then is not known here.
        """
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        while True:
            try:
                return await order()
            except RegistryUnavailableError as error:
                left_ms = deadline_ms - self._host.clock.monotonic_ms()
                if error.maybe_applied or left_ms <= 0:
                    raise
                try:
                    await self._host.tasks.wait(self._registry.until_connected(), left_ms)
                except TimeoutError:
                    raise error from None

    # -------------------------------------------------------------- deletion

    async def delete(self, name: str) -> None:
        """Mark a topic for deletion; the controller does the rest. No error when it is marked already."""
        try:
            await self._registry.create(deletion_path(name), make_parents=True)
        except NodeExistsError:
            return

    # -------------------------------------------------------------- settings

    async def topic_config(self, name: str) -> dict[str, str]:
        """A topic's overrides as the registry has them; empty where there are none."""
        try:
            data, _ = await self._registry.get(config_path(name))
        except NoNodeError:
            return {}
        return config_of_json(data)

    async def await_topic_config(self, name: str) -> dict[str, str]:
        """The same, for an order that must not be forgotten because the registry is away (Kafka retries, too)."""
        while True:
            try:
                return await self.topic_config(name)
            except (RegistryUnavailableError, SessionExpiredError):
                await self._registry.until_connected()  # raises once this broker ends

    async def alter_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, dry: bool = False
    ) -> None:
        """Replace a topic's overrides by `change` of them, whoever else writes at the same time.

        KafkaError(invalid_config) for settings that cannot be; with `dry` nothing is written.
        """
        await self._alter(f"topics/{name}", lambda before: _checked_config(change(before)), dry=dry)

    async def alter_broker_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, dry: bool = False
    ) -> None:
        """Replace a broker's dynamic settings (all brokers': no name) by `change` of them.

        KafkaError(invalid_request) for settings that only a start can change.
        """
        entity = f"brokers/{name or DEFAULT_BROKER}"
        await self._alter(entity, lambda before: _checked_broker_config(change(before)), dry=dry)

    async def _alter(
        self, entity: str, change: Callable[[dict[str, str]], dict[str, str]], *, dry: bool
    ) -> None:
        path = entity_config_path(entity)

        async def replace() -> None:
            while True:
                try:
                    data, stat = await self._registry.get(path)
                except NoNodeError:
                    data, stat = config_json({}), None
                changed = change(config_of_json(data))
                if dry:
                    return
                try:
                    if stat is None:
                        await self._registry.create(path, config_json(changed), make_parents=True)
                    else:
                        await self._registry.set(path, config_json(changed), stat.version)
                    return
                except (BadVersionError, NodeExistsError, NoNodeError):
                    continue  # somebody else was first: change what they wrote

        async def announce() -> None:
            note = json.dumps({"version": 2, "entity_path": entity}, separators=(",", ":"))
            await self._registry.create(CONFIG_CHANGE, note, sequential=True, make_parents=True)

        timeout_ms = self._config.number("request.timeout.ms")
        await self.reaching(replace, timeout_ms)
        if not dry:
            await self.reaching(announce, timeout_ms)

    # -------------------------------------------------------------- identity

    async def load_cluster_id(self) -> str | None:
        """The cluster's id, drawn by whoever asks first; None while the registry is out of reach."""
        if self._cache.cluster_id is not None:
            return self._cache.cluster_id
        fresh = {"version": "1", "id": text_of(draw_topic_id(self._host.random))}
        try:
            try:
                data, _ = await self._registry.get(CLUSTER_ID)
            except NoNodeError:
                data = json.dumps(fresh, separators=(",", ":"))
                try:
                    await self._registry.create(CLUSTER_ID, data, make_parents=True)
                except NodeExistsError:
                    data, _ = await self._registry.get(CLUSTER_ID)
        except RegistryError:
            return None
        found: str = json.loads(data)["id"]
        self._cache.cluster_id = found
        return found


def refusal_of(error: KafkaError | RegistryError) -> KafkaError:
    """What a client is told: a registry out of reach is a request that timed out, to be tried again."""
    if isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.request_timed_out, f"The registry could not be asked: {error}")


def topic_json(plan: TopicPlan) -> str:
    """The data of `/brokers/topics/T`."""
    rows = {
        number: ReplicaAssignment(replicas=tuple(nodes))
        for number, nodes in plan.assignment.items()
    }
    return assignment_json(plan.topic_id, rows)


def config_json(config: Mapping[str, str]) -> str:
    """The data of `/config/topics/T`."""
    return json.dumps({"version": 1, "config": dict(config)}, separators=(",", ":"))


def config_of_json(data: str) -> dict[str, str]:
    """The overrides in the data of `/config/topics/T`."""
    return dict(json.loads(data)["config"]) if data else {}


def _checked_config(config: Mapping[str, str | None]) -> dict[str, str]:
    nulls = sorted(name for name, value in config.items() if value is None)
    if nulls:
        raise KafkaError(
            ErrorCode.invalid_config,
            f"Null value not supported for topic configs: {', '.join(nulls)}",
        )
    checked = {name: value for name, value in config.items() if value is not None}
    try:
        validate_topic_config(checked)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    return checked


def _checked_broker_config(config: Mapping[str, str]) -> dict[str, str]:
    fixed = sorted(name for name in config if name not in BY_NAME or not is_dynamic(BY_NAME[name]))
    if fixed:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Cannot update these configs dynamically: {', '.join(fixed)}",
        )
    try:
        for name, value in config.items():
            BY_NAME[name].parse(value)
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    return dict(config)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def _bad_assignment(problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_replica_assignment, f"Invalid replica assignment: {problem}."
    )
