"""Creation and deletion of topics: writes to the registry, which the controller watches.

Owns: the nodes `/brokers/topics/T` and `/admin/delete_topics/T` as their writer (JSON as Apache Kafka 3.9's in
ZooKeeper), auto-creation, and the cluster id. The controller elects leaders; a caller that needs them waits on the
metadata cache.

Invariants: a topic and its settings are created by one transaction; a topic node is never overwritten here.
May fail: KafkaError with Kafka's codes, RegistryError when the registry is unreachable.

Source: Apache Kafka's `AdminZkClient`, `ZkAdminManager`, `AutoTopicCreationManager`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..config import BrokerConfig
from ..errors import ErrorCode, HarrowError, KafkaError, RegistryError
from ..host.seam import Host
from ..internal_topics import INTERNAL_TOPICS
from ..registry import Create, NodeExistsError, NoNodeError, RegistryClient, Set
from ..registry.paths import CLUSTER_ID, TOPIC_CONFIGS, TOPICS, config_path, deletion_path, topic_path
from ..wire.topic_ids import draw_topic_id, text_of
from .cache import MetadataCache
from .config_store import ConfigStore, config_json
from .new_topic import NewTopic, TopicPlan, TopicPlanner, already_exists
from .registry_retries import RegistryRetries

__all__ = ["TopicAdmin"]

REFUSED_MOST = 100
"""Names of refused auto-creations that a broker logs: a client must not fill the disk."""


class TopicAdmin:
    """Topics, from one broker's side."""

    def __init__(self, host: Host, registry: RegistryClient, cache: MetadataCache, config: BrokerConfig) -> None:
        self._host = host
        self.registry = registry
        self._cache = cache
        self._config = config
        self.retries = RegistryRetries(host, registry)
        self.configs = ConfigStore(registry, self.retries, config, host.disk.read)
        self._planner = TopicPlanner(host, cache, config)
        self._creating: set[str] = set()
        self._refused: set[str] = set()
        """Names whose auto-creation was refused, each logged once; at most `REFUSED_MOST`."""

    # -------------------------------------------------------------- creation

    def plan(self, requested: NewTopic) -> TopicPlan:
        """Complete and validate a requested topic; KafkaError says why it is refused."""
        return self._planner.plan(requested)

    async def create(self, plan: TopicPlan) -> None:
        """Write a planned topic; KafkaError(topic_already_exists) when another request was first."""
        topic = Create(topic_path(plan.name), plan.to_json())
        overrides, config = config_path(plan.name), config_json(plan.config)
        for _ in range(3):
            try:
                await self.registry.multi([Create(overrides, config), topic])
                return
            except NoNodeError:
                await self._make_parents()
            except NodeExistsError:
                if await self.registry.exists(topic.path) is not None:
                    raise already_exists(plan.name) from None
                if await self._replace_config_and_create(overrides, config, topic):
                    return
        raise KafkaError(ErrorCode.unknown_server_error, f"the registry nodes of {plan.name} keep changing")

    async def _replace_config_and_create(self, path: str, config: str, topic: Create) -> bool:
        """Replace the settings that an older topic left behind; False when they changed in between."""
        try:
            await self.registry.multi([Set(path, config), topic])
        except (NoNodeError, NodeExistsError):
            return False
        return True

    async def _make_parents(self) -> None:
        for path in (TOPICS, TOPIC_CONFIGS):
            await self.registry.ensure(path)

    async def ensure_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> None:
        """Create a topic unless it exists, and wait until this broker's cache has it.

        KafkaError(invalid_replication_factor) while fewer brokers are live than `replication_factor`.
        """
        requested = NewTopic(name=name, partitions=partitions, replication_factor=replication_factor, config=config)
        try:
            await self.create(self.plan(requested))
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
        await self._cache.await_until(
            lambda: self._cache.partition_count(name) > 0, self._config.number("request.timeout.ms")
        )

    def auto_create(self, name: str) -> ErrorCode:
        """Begin to create a topic that a client named; returns the error code for the client.

        unknown_topic_or_partition, as in Kafka, whether the creation is in progress or cannot begin: the log of the
        broker says why not. invalid_topic_exception for a name that no topic can have.
        """
        if name in self._creating:
            return ErrorCode.unknown_topic_or_partition
        try:
            plan = self.plan(self._auto_topic(name))
        except KafkaError as error:
            if error.code is ErrorCode.invalid_topic_exception:
                return error.code
            if name not in self._refused and len(self._refused) < REFUSED_MOST:
                self._refused.add(name)
                self._host.trace.log("warning", f"auto-creation of {name}: {error}")
            return ErrorCode.unknown_topic_or_partition
        self._creating.add(name)
        self._host.tasks.spawn(self._auto_create(plan), name=f"create-{name}")
        return ErrorCode.unknown_topic_or_partition

    def _auto_topic(self, name: str) -> NewTopic:
        internal = INTERNAL_TOPICS.get(name)
        if internal is None:
            return NewTopic(name=name)
        return NewTopic(
            name=name,
            partitions=internal.partitions(self._config),
            replication_factor=internal.replication_factor(self._config),
            config=internal.settings(self._config),
        )

    async def _auto_create(self, plan: TopicPlan) -> None:
        try:
            await self.create(plan)
            await self._cache.await_until(
                lambda: self._cache.partition_count(plan.name) > 0, self._config.number("request.timeout.ms")
            )
        except KafkaError as error:
            if error.code is not ErrorCode.topic_already_exists:
                self._host.trace.log("warning", f"auto-creation of {plan.name}: {error}")
        except HarrowError as error:
            # the client requests metadata again, and that begins the creation again
            self._host.trace.log("warning", f"auto-creation of {plan.name}: {error}")
        finally:
            self._creating.discard(plan.name)

    # -------------------------------------------------------------- deletion

    async def delete(self, name: str) -> None:
        """Mark a topic for deletion by the controller. No error when it is marked already."""
        try:
            await self.registry.create(deletion_path(name), make_parents=True)
        except NodeExistsError:
            return

    # -------------------------------------------------------------- identity

    async def load_cluster_id(self) -> str | None:
        """The cluster id, drawn by the first broker that needs it; None while the registry is unreachable."""
        if self._cache.cluster_id is not None:
            return self._cache.cluster_id
        drawn = {"version": "1", "id": text_of(draw_topic_id(self._host.random))}
        try:
            try:
                data, _ = await self.registry.get(CLUSTER_ID)
            except NoNodeError:
                data = json.dumps(drawn, separators=(",", ":"))
                try:
                    await self.registry.create(CLUSTER_ID, data, make_parents=True)
                except NodeExistsError:
                    data, _ = await self.registry.get(CLUSTER_ID)
        except RegistryError:
            return None
        found: str = json.loads(data)["id"]
        self._cache.cluster_id = found
        return found
