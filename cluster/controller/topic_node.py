"""The node of a topic: its id, and which brokers hold which of its partitions.

Owns: `ReplicaAssignment` (Kafka's name, with adding and removing replicas of KIP-455) and the JSON of
`/brokers/topics/T` (Kafka's TopicZNode).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ids import NodeId
from ..wire.topic_ids import UUID, text_of, topic_id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The assigned replicas of one partition; while it is reassigned, also those that are added and removed."""

    replicas: tuple[NodeId, ...]
    """All replicas, those of the target first: the preferred leader, its followers, then those to be removed."""
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """True while replicas are added or removed."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas after the reassignment."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def origin(self) -> tuple[NodeId, ...]:
        """The replicas before the reassignment."""
        return tuple(node for node in self.replicas if node not in self.adding)

    def orders_the_same_as(self, other: ReplicaAssignment) -> bool:
        """True when both are at rest and have the same replicas, in any order."""
        at_rest = not self.is_reassigned and not other.is_reassigned
        return at_rest and set(self.replicas) == set(other.replicas)

    def toward(self, target: Sequence[NodeId]) -> ReplicaAssignment:
        """The assignment that begins a reassignment to `target`, from the origin of this one."""
        origin = self.origin
        return ReplicaAssignment(
            replicas=tuple(dict.fromkeys((*target, *origin))),
            adding=tuple(node for node in target if node not in origin),
            removing=tuple(node for node in origin if node not in target),
        )


def topic_json(topic_id: UUID | None, partitions: Mapping[int, ReplicaAssignment]) -> str:
    """The data of a topic's node."""
    rows = sorted(partitions.items())
    value = {
        "version": 3,
        "topic_id": None if topic_id is None else text_of(topic_id),
        "partitions": {str(number): [*row.replicas] for number, row in rows},
        "adding_replicas": {str(number): [*row.adding] for number, row in rows if row.adding},
        "removing_replicas": {str(number): [*row.removing] for number, row in rows if row.removing},
    }
    return json.dumps(value, separators=(",", ":"))


def parse_topic(data: str) -> tuple[UUID | None, dict[int, ReplicaAssignment]]:
    """The topic id (None where the node has none) and the assignment of each partition."""
    value: dict[str, Any] = json.loads(data)
    text = value.get("topic_id")
    adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
    return topic_id_of(text) if text else None, {
        int(number): ReplicaAssignment(
            replicas=_nodes(replicas), adding=_nodes(adding.get(number, ())), removing=_nodes(removing.get(number, ()))
        )
        for number, replicas in value["partitions"].items()
    }


def _nodes(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)
