"""What the controller knows: live brokers, topics, and each partition's leader and ISR. Sans-IO.

Owns: `PartitionState` and `Assignment` with their JSON, `ClusterState` with its reading from the registry's tree.
Kafka's ControllerContext, ReplicaAssignment, TopicZNode. Everything here is a cache of the registry; versions say
how old an entry is, and no decision made on it takes effect unless the registry still has that version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ids import NO_NODE, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from ..registry import Stat, Tree
from ..registry.paths import BROKER_IDS, TOPICS
from ..wire.topic_ids import UUID, text_of, topic_id_of
from .registration import BrokerInfo, broker_info


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition's state node. `leader` is -1 while nobody leads it.

    `version` and `written` (the node's version and the transaction that wrote it) belong to what was read;
    a state that is only proposed carries those of the state it shall replace.
    """

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    controller_epoch: ControllerEpoch
    version: int = 0
    written: int = 0

    def to_json(self) -> str:
        """The node's data."""
        return state_json(self.leader, self.leader_epoch, self.isr, self.controller_epoch)


def state_json(
    leader: NodeId, leader_epoch: LeaderEpoch, isr: Iterable[NodeId], epoch: ControllerEpoch
) -> str:
    """The data of a partition's state node (Kafka's TopicPartitionStateZNode)."""
    value = {
        "controller_epoch": epoch,
        "leader": leader,
        "version": 1,
        "leader_epoch": leader_epoch,
        "isr": list(isr),
    }
    return json.dumps(value, separators=(",", ":"))


def partition_state(data: str, stat: Stat) -> PartitionState:
    """What a state node says."""
    value: dict[str, Any] = json.loads(data)
    return PartitionState(
        leader=NodeId(value["leader"]),
        leader_epoch=LeaderEpoch(value["leader_epoch"]),
        isr=tuple(NodeId(node) for node in value["isr"]),
        controller_epoch=ControllerEpoch(value["controller_epoch"]),
        version=stat.version,
        written=stat.mzxid,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Where a partition's replicas lie, and which of them come and go while it is reassigned (KIP-455)."""

    replicas: tuple[NodeId, ...]
    """All of them, the wanted ones first: preferred leader, then the others, then those to be removed."""
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()

    @property
    def moving(self) -> bool:
        """True while replicas come or go."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas when it is done."""
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def origin(self) -> tuple[NodeId, ...]:
        """The replicas as they were before."""
        return tuple(node for node in self.replicas if node not in self.adding)

    def toward(self, target: Sequence[NodeId]) -> Assignment:
        """This one on its way to `target`, whatever it was on its way to before."""
        origin = self.origin
        return Assignment(
            replicas=tuple(dict.fromkeys((*target, *origin))),
            adding=tuple(node for node in target if node not in origin),
            removing=tuple(node for node in origin if node not in target),
        )


def topic_json(topic_id: UUID | None, partitions: Mapping[int, Assignment]) -> str:
    """The data of `/brokers/topics/T` (Kafka's TopicZNode)."""
    rows = sorted(partitions.items())
    value = {
        "version": 3,
        "topic_id": None if topic_id is None else text_of(topic_id),
        "partitions": {str(number): [*row.replicas] for number, row in rows},
        "adding_replicas": {str(number): [*row.adding] for number, row in rows if row.adding},
        "removing_replicas": {str(number): [*row.removing] for number, row in rows if row.removing},
    }
    return json.dumps(value, separators=(",", ":"))


@dataclass(slots=True)
class ClusterState:
    """The controller's picture of the cluster."""

    brokers: dict[NodeId, BrokerInfo] = field(default_factory=dict[NodeId, BrokerInfo])
    shutting_down: set[NodeId] = field(default_factory=set[NodeId])
    topics: dict[str, UUID | None] = field(default_factory=dict[str, UUID | None])
    topic_versions: dict[str, int] = field(default_factory=dict[str, int])
    assignments: dict[TopicPartition, tuple[NodeId, ...]] = field(
        default_factory=dict[TopicPartition, tuple[NodeId, ...]]
    )
    moving: dict[TopicPartition, Assignment] = field(
        default_factory=dict[TopicPartition, Assignment]
    )
    """Partitions that are being reassigned; their `replicas` are those of `assignments`."""
    partitions: dict[TopicPartition, PartitionState] = field(
        default_factory=dict[TopicPartition, PartitionState]
    )
    deleting: set[str] = field(default_factory=set[str])
    unclean: dict[str, bool] = field(default_factory=dict[str, bool])

    def figures(self) -> dict[str, int]:
        """Numbers for metrics."""
        kept = [tp for tp in self.kept() if tp in self.partitions]
        leaders = {tp: self.partitions[tp].leader for tp in kept}
        away = sum(self.assignments[tp][0] != leader for tp, leader in leaders.items())
        return {
            "topics": len(self.topics),
            "partitions": len(self.assignments),
            "offline": sum(leader not in self.brokers for leader in leaders.values()),
            "imbalance": away,
            "to_delete": len(self.deleting),
            "moving": len(self.moving),
        }

    def electable(self) -> set[NodeId]:
        """Live brokers that are not on their way out."""
        return self.brokers.keys() - self.shutting_down

    def still_shutting_down(self, brokers: Mapping[NodeId, BrokerInfo]) -> set[NodeId]:
        """Who of those that shut down is among `brokers` in the same life: who registered anew has come back."""
        return {
            node
            for node in self.shutting_down
            if node in brokers and brokers[node].epoch == self.brokers[node].epoch
        }

    def kept(self) -> Iterator[TopicPartition]:
        """Partitions of topics that are not being deleted."""
        return (tp for tp in self.assignments if tp.topic not in self.deleting)

    def of_brokers(self, nodes: Iterable[NodeId]) -> list[TopicPartition]:
        """Kept partitions with a replica on any of `nodes`."""
        wanted = frozenset(nodes)
        return [tp for tp in self.kept() if not wanted.isdisjoint(self.assignments[tp])]

    def without_state(self) -> list[TopicPartition]:
        """Kept partitions that have never had a leader."""
        return [tp for tp in self.kept() if tp not in self.partitions]

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """The partitions of one topic."""
        return [tp for tp in self.assignments if tp.topic == topic]

    def assignment(self, tp: TopicPartition) -> Assignment:
        """Where a known partition's replicas lie."""
        return self.moving.get(tp) or Assignment(replicas=self.assignments[tp])

    def assign(self, tp: TopicPartition, assignment: Assignment) -> None:
        """Take over where a partition's replicas lie."""
        self.assignments[tp] = assignment.replicas
        if assignment.moving:
            self.moving[tp] = assignment
        else:
            self.moving.pop(tp, None)

    def topic_assignment(self, topic: str) -> dict[int, Assignment]:
        """All partitions of a topic by number."""
        return {tp.partition: self.assignment(tp) for tp in self.of_topic(topic)}

    def forget_topic(self, topic: str) -> None:
        """The topic is gone from the registry."""
        for tp in self.of_topic(topic):
            del self.assignments[tp]
            self.moving.pop(tp, None)
            self.partitions.pop(tp, None)
        self.topics.pop(topic, None)
        self.topic_versions.pop(topic, None)
        self.unclean.pop(topic, None)
        self.deleting.discard(topic)

    def read_topics(self, tree: Tree) -> None:
        """Take over every topic of a subtree: its id, its assignment, its partitions' states."""
        for path, (data, stat) in tree.items():
            parts = path.removeprefix(TOPICS).split("/")[1:]
            if not path.startswith(f"{TOPICS}/"):
                continue
            if len(parts) == 1 and data:
                self.topic_versions[parts[0]] = stat.version
                self._read_topic(parts[0], json.loads(data))
            elif len(parts) == 4 and parts[3] == "state":
                tp = TopicPartition(parts[0], int(parts[2]))
                self.partitions[tp] = partition_state(data, stat)

    def _read_topic(self, topic: str, value: Mapping[str, Any]) -> None:
        text = value.get("topic_id")
        self.topics[topic] = topic_id_of(text) if text else None
        adding, removing = value.get("adding_replicas", {}), value.get("removing_replicas", {})
        for number, replicas in value["partitions"].items():
            assignment = Assignment(
                replicas=_nodes(replicas),
                adding=_nodes(adding.get(number, ())),
                removing=_nodes(removing.get(number, ())),
            )
            self.assign(TopicPartition(topic, int(number)), assignment)


def _nodes(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def brokers_of(tree: Tree) -> dict[NodeId, BrokerInfo]:
    """The registrations in a subtree."""
    found: dict[NodeId, BrokerInfo] = {}
    for path, (data, stat) in tree.items():
        if path.startswith(f"{BROKER_IDS}/"):
            node_id = NodeId(int(path.rpartition("/")[2]))
            found[node_id] = broker_info(node_id, data, stat)
    return found


def no_leader(state: PartitionState) -> bool:
    """True while nobody leads it."""
    return state.leader == NO_NODE
