"""A group coordinator without a cluster: requests in, decoded responses out."""

from __future__ import annotations

from typing import Any, cast

from coordinator_fakes import FakeCache, FakePartition, FakeReplicas, Sent, send_request
from harrow.cluster.config import BrokerConfig
from harrow.cluster.defaults import ASSIGNED_AT_ONCE
from harrow.cluster.errors import KafkaError
from harrow.cluster.groups import GroupCoordinator
from harrow.cluster.metadata.new_topic import NewTopic
from manual_host import ManualHost
from memory_persister import MemoryPersister


class FakeTopics:
    """Creates topics at once; those of `refused` get the error."""

    def __init__(self, cache: FakeCache) -> None:
        self._cache = cache
        self.created: list[NewTopic] = []
        self.refused: dict[str, KafkaError] = {}

    def plan(self, requested: NewTopic) -> NewTopic:
        """Refuse the topic, or return it as its plan."""
        if requested.name in self.refused:
            raise self.refused[requested.name]
        return requested

    async def create(self, plan: NewTopic) -> None:
        """Create it."""
        self.created.append(plan)
        self._cache.change(**{plan.name: plan.partitions})


class GroupTestBed:
    """A group coordinator, and the partitions of `__consumer_offsets` that a test lets it lead."""

    def __init__(self, **settings: object) -> None:
        self.host = ManualHost()
        self.replicas = FakeReplicas(self.host)
        self.cache = FakeCache()
        self.topics = FakeTopics(self.cache)
        defaults: dict[str, object] = {"group.initial.rebalance.delay.ms": 0, **ASSIGNED_AT_ONCE}
        config = BrokerConfig.parse({**defaults, **{name.replace("_", "."): value for name, value in settings.items()}})
        replicas, cache = cast("Any", (self.replicas, self.cache))
        self.persister = MemoryPersister()
        topics = cast("Any", self.topics)
        self.coordinator = GroupCoordinator(self.host, config, replicas, cache, topics, self.persister)
        self.handlers = {int(row.api_key): row for row in self.coordinator.handlers()}

    def lead(self, number: int, *, high_watermark: int | None = None) -> FakePartition:
        """Begin to lead a partition of `__consumer_offsets`."""
        return self.replicas.lead(number, high_watermark=high_watermark)

    def resign(self, number: int) -> None:
        """Stop leading it."""
        self.replicas.resign(number)

    def send(self, api_key: int, version: int, **fields: Any) -> Sent:
        """Encode, decode and handle a request as a connection would."""
        return send_request(self.host, self.handlers[api_key], version, **fields)
