"""What the active controller stores about the cluster: live brokers, topics, each partition's leader and ISR. Sans-IO.

Owns: `ControllerContext` (Kafka's name) and how it is read from the registry's tree. All of it is a cache of the
registry. The versions say how old an entry is: a decision that was made on an old entry fails, because the registry
no longer has that version.

Invariant: `partitions` and `reassigned` name only partitions of `assignments`; the partitions of a topic are found
without looking at those of other topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..ids import NodeId, TopicPartition
from ..registry import Tree
from ..registry.paths import BROKER_IDS, TOPICS, partition_of_state_path
from ..wire.topic_ids import UUID
from .registration import BrokerInfo, broker_info
from .state_node import LeaderAndIsr, parse_state
from .topic_node import ReplicaAssignment, parse_topic


@dataclass(slots=True)
class ControllerContext:
    """The cluster as the active controller last read or wrote it."""

    brokers: dict[NodeId, BrokerInfo] = field(default_factory=dict[NodeId, BrokerInfo])
    shutting_down: set[NodeId] = field(default_factory=set[NodeId])
    topics: dict[str, UUID | None] = field(default_factory=dict[str, UUID | None])
    topic_versions: dict[str, int] = field(default_factory=dict[str, int])
    assignments: dict[TopicPartition, tuple[NodeId, ...]] = field(
        default_factory=dict[TopicPartition, tuple[NodeId, ...]]
    )
    reassigned: dict[TopicPartition, ReplicaAssignment] = field(default_factory=dict[TopicPartition, ReplicaAssignment])
    """Partitions whose reassignment is in progress; their `replicas` are those of `assignments`."""
    partitions: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict[TopicPartition, LeaderAndIsr])
    deleting: set[str] = field(default_factory=set[str])
    unclean: dict[str, bool] = field(default_factory=dict[str, bool])
    """`unclean.leader.election.enable` of the topics that override it."""
    _by_topic: dict[str, dict[TopicPartition, None]] = field(default_factory=dict[str, dict[TopicPartition, None]])

    def figures(self) -> dict[str, int]:
        """Counts for the metrics."""
        kept = [tp for tp in self.kept() if tp in self.partitions]
        leaders = {tp: self.partitions[tp].leader for tp in kept}
        imbalance = sum(self.assignments[tp][0] != leader for tp, leader in leaders.items())
        return {
            "topics": len(self.topics),
            "partitions": len(self.assignments),
            "offline": sum(leader not in self.brokers for leader in leaders.values()),
            "imbalance": imbalance,
            "to_delete": len(self.deleting),
            "moving": len(self.reassigned),
        }

    # --------------------------------------------------------------- brokers

    def electable(self) -> set[NodeId]:
        """Live brokers that are not in a controlled shutdown."""
        return self.brokers.keys() - self.shutting_down

    def still_shutting_down(self, brokers: Mapping[NodeId, BrokerInfo]) -> set[NodeId]:
        """The brokers that shut down and are still in `brokers` under the same registration.

        A broker with a newer registration has restarted: its shutdown is over.
        """
        unknown = self.shutting_down - self.brokers.keys()
        assert not unknown, f"brokers {unknown} shut down and are not registered"
        return {
            node for node in self.shutting_down if node in brokers and brokers[node].epoch == self.brokers[node].epoch
        }

    # ------------------------------------------------------------ partitions

    def kept(self) -> Iterator[TopicPartition]:
        """Partitions of topics that are not being deleted."""
        return (tp for tp in self.assignments if tp.topic not in self.deleting)

    def of_brokers(self, nodes: Iterable[NodeId]) -> list[TopicPartition]:
        """Kept partitions with a replica on any of `nodes`."""
        wanted = frozenset(nodes)
        return [tp for tp in self.kept() if not wanted.isdisjoint(self.assignments[tp])]

    def of_topic(self, topic: str) -> list[TopicPartition]:
        """The partitions of one topic."""
        return list(self._by_topic.get(topic, ()))

    def without_state(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Kept partitions of `topics` (None: of all) that have never had a leader."""
        asked = self.assignments if topics is None else (tp for t in topics for tp in self.of_topic(t))
        return [tp for tp in asked if tp.topic not in self.deleting and tp not in self.partitions]

    def assignment(self, tp: TopicPartition) -> ReplicaAssignment:
        """The replicas of a known partition."""
        return self.reassigned.get(tp) or ReplicaAssignment(replicas=self.assignments[tp])

    def topic_assignment(self, topic: str) -> dict[int, ReplicaAssignment]:
        """The replicas of each partition of a topic."""
        return {tp.partition: self.assignment(tp) for tp in self.of_topic(topic)}

    def assign(self, tp: TopicPartition, assignment: ReplicaAssignment) -> None:
        """Store the replicas of a partition."""
        assert assignment.replicas, f"{tp}: no replicas"
        self._by_topic.setdefault(tp.topic, {})[tp] = None
        self.assignments[tp] = assignment.replicas
        if assignment.is_reassigned:
            self.reassigned[tp] = assignment
        else:
            self.reassigned.pop(tp, None)

    # ---------------------------------------------------------------- topics

    def remove_topic(self, topic: str) -> None:
        """Forget a topic that the registry no longer has."""
        for tp in self._by_topic.pop(topic, ()):
            del self.assignments[tp]
            self.reassigned.pop(tp, None)
            self.partitions.pop(tp, None)
        self.topics.pop(topic, None)
        self.topic_versions.pop(topic, None)
        self.unclean.pop(topic, None)
        self.deleting.discard(topic)

    def read_topics(self, tree: Tree) -> None:
        """Store every topic of a subtree: its id, its assignment, the states of its partitions."""
        for path, (data, stat) in tree.items():
            above, _, name = path.rpartition("/")
            if above == TOPICS:
                if data:
                    self.topic_versions[name] = stat.version
                    self._read_topic(name, data)
            elif (tp := partition_of_state_path(path)) is not None:
                self.partitions[tp] = parse_state(data, stat)

    def _read_topic(self, topic: str, data: str) -> None:
        self.topics[topic], partitions = parse_topic(data)
        for number, assignment in partitions.items():
            self.assign(TopicPartition(topic, number), assignment)


def brokers_of(tree: Tree) -> dict[NodeId, BrokerInfo]:
    """The broker registrations in a subtree."""
    found: dict[NodeId, BrokerInfo] = {}
    for path, (data, stat) in tree.items():
        if path.startswith(f"{BROKER_IDS}/"):
            node_id = NodeId(int(path.rpartition("/")[2]))
            found[node_id] = broker_info(node_id, data, stat)
    return found
