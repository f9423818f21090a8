"""Topics that are being deleted: which replicas have not confirmed yet that their log is deleted.

Owns: `TopicDeletions`. Sans-IO. A topic leaves the registry only when every assigned replica has confirmed, so a broker
that was down cannot come back with a log of an older topic of that name. Metadata does not show the topic meanwhile.
Replicas of brokers that are down wait for their start. Source: Kafka's TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ErrorCode
from ..ids import NodeId, TopicPartition
from .controller_context import ControllerContext

_DELETED = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


class TopicDeletions:
    """Replicas that still have to be deleted, by topic."""

    def __init__(self) -> None:
        self._left: dict[str, set[tuple[NodeId, int]]] = {}

    def begin(self, topic: str, context: ControllerContext) -> None:
        """Every replica of `topic` must be deleted."""
        self._left[topic] = {(node, tp.partition) for tp in context.of_topic(topic) for node in context.assignments[tp]}

    def left_on(
        self, nodes: Iterable[NodeId], topics: Iterable[str] | None = None
    ) -> dict[NodeId, list[TopicPartition]]:
        """What each of `nodes` has still to delete, of `topics` (None: of all)."""
        found: dict[NodeId, list[TopicPartition]] = {}
        wanted = frozenset(nodes)
        for topic in self._left if topics is None else topics:
            for node, partition in sorted(self._left.get(topic, ())):
                if node in wanted:
                    found.setdefault(node, []).append(TopicPartition(topic, partition))
        return found

    def confirmed(self, node_id: NodeId, response: Any) -> None:
        """A broker responded to StopReplica (v4 entity); a replica with an error is to be deleted again."""
        for row in response.partition_errors:
            if row.error_code in _DELETED:
                left = self._left.get(row.topic_name)
                if left is not None:
                    left.discard((node_id, row.partition_index))

    def finished(self) -> list[str]:
        """Topics whose replicas are all deleted."""
        return sorted(topic for topic, left in self._left.items() if not left)

    def end(self, topic: str) -> None:
        """The topic was removed from the registry."""
        self._left.pop(topic, None)

    def clear(self) -> None:
        """Forget everything: the context is loaded again."""
        self._left.clear()
