"""Creates the internal topics of streams groups: repartition topics and changelogs.

Owns: the topics that are being created, and why a creation failed, for two heartbeat intervals of the group: until then
it is not tried again. A broker creates them with its own rights; the sender of the heartbeat must be allowed to CREATE
them (`streams_api`).

Source: Kafka's AutoTopicCreationManager.createStreamsInternalTopics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from ..errors import HarrowError, KafkaError
from ..host.seam import Host
from ..metadata.new_topic import NewTopic, TopicPlan
from .streams.topology import TopicInfo

ERRORS_MOST = 1_000
"""Failures that are remembered; the oldest are forgotten, as in Kafka."""


class TopicCreator(Protocol):
    """What creates topics; `TopicAdmin` is one."""

    def plan(self, requested: NewTopic) -> TopicPlan:
        """Complete and validate a requested topic; KafkaError."""
        ...

    async def create(self, plan: TopicPlan) -> None:
        """Write a planned topic; KafkaError, RegistryError."""
        ...


class _Failure(NamedTuple):
    text: str
    until_ms: int


class StreamsTopics:
    """The internal topics that this broker creates."""

    def __init__(self, host: Host, creator: TopicCreator) -> None:
        self._host = host
        self._creator = creator
        self._creating: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Iterable[TopicInfo], forget_after_ms: int) -> None:
        """Begin to create those topics that are not being created, and whose creation did not fail just now."""
        now_ms = self._host.clock.monotonic_ms()
        for topic in topics:
            failure = self._failures.get(topic.name)
            if topic.name in self._creating or (failure is not None and failure.until_ms > now_ms):
                continue
            self._creating.add(topic.name)
            self._host.tasks.spawn(self._create(topic, forget_after_ms), name=f"create-{topic.name}")

    def failures(self, topics: Iterable[TopicInfo]) -> list[tuple[str, str]]:
        """Topic and reason of each creation that failed just now."""
        now_ms = self._host.clock.monotonic_ms()
        found = ((topic.name, self._failures.get(topic.name)) for topic in topics)
        return [(name, failure.text) for name, failure in found if failure is not None and failure.until_ms > now_ms]

    async def _create(self, topic: TopicInfo, forget_after_ms: int) -> None:
        requested = NewTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor or -1,
            config=dict(topic.configs),
        )
        try:
            await self._creator.create(self._creator.plan(requested))
            self._failures.pop(topic.name, None)
        except HarrowError as error:
            text = error.message if isinstance(error, KafkaError) and error.message else str(error)
            self._host.trace.log("warning", f"internal topic {topic.name}: {text}")
            self._failures.pop(topic.name, None)
            self._failures[topic.name] = _Failure(text, self._host.clock.monotonic_ms() + forget_after_ms)
            while len(self._failures) > ERRORS_MOST:
                del self._failures[next(iter(self._failures))]
        finally:
            self._creating.discard(topic.name)
