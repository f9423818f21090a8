"""Topics on their way out: which replicas have not confirmed yet that their log is gone.

Owns: `TopicDeletions`. Sans-IO. A topic leaves the registry only when every assigned replica has confirmed, so
that no broker that was away comes back with a log of a former life; until then it is gone from metadata
already. Replicas of dead brokers wait for their start. Source: Kafka's TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import ErrorCode
from ..ids import NodeId, TopicPartition
from .state import ClusterState

_GONE = (ErrorCode.none, ErrorCode.unknown_topic_or_partition)


class TopicDeletions:
    """Replicas that still have to be deleted, by topic."""

    def __init__(self) -> None:
        self._left: dict[str, set[tuple[NodeId, int]]] = {}

    def begin(self, topic: str, state: ClusterState) -> None:
        """Every replica of `topic` has to go."""
        self._left[topic] = {
            (node, tp.partition) for tp in state.of_topic(topic) for node in state.assignments[tp]
        }

    def left_on(self, nodes: Iterable[NodeId]) -> dict[NodeId, list[TopicPartition]]:
        """What each of `nodes` has still to delete."""
        found: dict[NodeId, list[TopicPartition]] = {}
        wanted = frozenset(nodes)
        for topic, replicas in self._left.items():
            for node, partition in sorted(replicas):
                if node in wanted:
                    found.setdefault(node, []).append(TopicPartition(topic, partition))
        return found

    def confirmed(self, node_id: NodeId, response: Any) -> None:
        """A broker answered StopReplica (v4 entity); errors leave the replica to be deleted again."""
        for row in response.partition_errors:
            if row.error_code in _GONE:
                left = self._left.get(row.topic_name)
                if left is not None:
                    left.discard((node_id, row.partition_index))

    def finished(self) -> list[str]:
        """Topics none of whose replicas are left."""
        return sorted(topic for topic, left in self._left.items() if not left)

    def end(self, topic: str) -> None:
        """The topic is gone from the registry."""
        self._left.pop(topic, None)
