"""Topics that were created, got more partitions, or were removed from the registry by hand (C9).

Owns: `TopicEvents`: the watch on `/brokers/topics`, and the first states of new partitions.
Source: Kafka's KafkaController.processTopicChange, onNewPartitionCreation.
"""

from __future__ import annotations

from ..ids import TopicPartition
from ..registry import ReadTree
from ..registry.client import results_or_errors, value_of
from ..registry.paths import TOPICS, topic_path
from .controller_core import ControllerCore
from .state_updates import StateUpdates
from .topic_deletion import TopicDeletions


class TopicEvents:
    """Handlers of topic changes."""

    def __init__(self, core: ControllerCore, updates: StateUpdates, deletions: TopicDeletions) -> None:
        self._core = core
        self._updates = updates
        self._deletions = deletions

    async def topics_changed(self) -> None:
        """Read new topics, elect leaders for them; forget the topics that are gone."""
        core, context = self._core, self._core.context
        names = set(await core.watched_children(TOPICS, "topics", self.topics_changed))
        for topic in sorted(context.topics.keys() - names):
            context.remove_topic(topic)
            self._deletions.end(topic)
        new = sorted(names - context.topics.keys())
        if not new:
            return
        trees = await results_or_errors(*[core.registry.submit(ReadTree(topic_path(topic))) for topic in new])
        for tree in trees:
            context.read_topics(value_of(tree))
        await self._updates.load_configs(new)
        await self._create_and_send(new)

    async def partitions_added(self, topic: str) -> None:
        """Elect leaders for the new partitions of a topic."""
        await self._create_and_send([topic])

    async def _create_and_send(self, topics: list[str]) -> list[TopicPartition]:
        created = await self._updates.create_missing(topics)
        batch = self._core.new_batch()
        batch.leader_and_isr(created, new=True)
        batch.metadata(tp for topic in topics for tp in self._core.context.of_topic(topic))
        batch.flush()
        return created
