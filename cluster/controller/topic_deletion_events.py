"""Topics that were marked for deletion, and replicas that confirmed theirs (C9).

Owns: `TopicDeletionEvents`: the watch on `/admin/delete_topics`. Source: Kafka's KafkaController.processTopicDeletion,
TopicDeletionManager.resumeDeletions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..host.seam.failpoints import BEFORE_TOPIC_REMOVAL, passes
from ..ids import NodeId
from ..registry import Delete, DeleteTree
from ..registry.paths import DELETIONS, config_path, deletion_path, topic_path
from .controller_core import ControllerCore
from .requests import RequestBatch
from .topic_deletion import TopicDeletions
from .topic_events import TopicEvents


class TopicDeletionEvents:
    """Handlers of topic deletions."""

    def __init__(self, core: ControllerCore, topics: TopicEvents, deletions: TopicDeletions) -> None:
        self._core = core
        self._topics = topics
        self._deletions = deletions

    async def deletions_changed(self) -> None:
        """Topics were marked for deletion."""
        core = self._core
        names = set(await core.watched_children(DELETIONS, "deletions", self.deletions_changed))
        if not names <= core.context.topics.keys():
            await self._topics.topics_changed()  # a topic that was created a moment ago
        await self.begin(names - core.context.deleting)

    async def begin(self, topics: set[str]) -> None:
        """Remove topics from metadata and delete their replicas; marks of unknown topics are removed."""
        core, context = self._core, self._core.context
        for topic in sorted(topics - context.topics.keys()):
            await core.remove_if_present([Delete(deletion_path(topic))])
        known = sorted(topics & context.topics.keys())
        if not known:
            return
        context.deleting |= set(known)
        batch = core.new_batch()
        batch.metadata(tp for topic in known for tp in context.of_topic(topic))
        for topic in known:
            self._deletions.begin(topic, context)
        self._stop(batch, context.brokers, known)
        batch.flush()

    def repeat(self, batch: RequestBatch, nodes: Iterable[NodeId]) -> None:
        """Ask brokers that have started to delete what they have still to delete."""
        self._stop(batch, nodes, None)

    def _stop(self, batch: RequestBatch, nodes: Iterable[NodeId], topics: Iterable[str] | None) -> None:
        for node_id, left in self._deletions.left_on(nodes, topics).items():
            batch.stop(left, only=(node_id,), delete=True)

    def stop_replica_response(self, node_id: NodeId, response: Any) -> None:
        """A broker responded to StopReplica."""
        self._deletions.confirmed(node_id, response)
        if self._deletions.finished():
            self._core.enqueue("deleted", self._finish)

    async def _finish(self) -> None:
        host = self._core.host
        for topic in self._deletions.finished():
            passes(host.failpoints, host.trace, BEFORE_TOPIC_REMOVAL, topic)
            await self._core.remove_if_present(
                [DeleteTree(topic_path(topic)), DeleteTree(config_path(topic)), DeleteTree(deletion_path(topic))]
            )
            self._deletions.end(topic)
            self._core.context.remove_topic(topic)
            self._core.host.trace.log("info", f"controller: topic {topic} is deleted")
