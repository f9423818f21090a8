"""Types of the cluster's numbers and names: offsets, epochs, nodes, partitions.

Each kind of epoch has a type of its own: the name of an epoch always says whose epoch it is. All are plain `int` at run
time; the types keep a broker epoch from being compared with a leader epoch.
"""

from collections.abc import Iterable
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""A broker's `node.id`; -1 for no broker (a partition without a leader)."""

Offset = NewType("Offset", int)
"""A record's position in the log of its partition, from 0; -1 for an unknown offset."""

ControllerEpoch = NewType("ControllerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_NODE = NodeId(-1)
NO_OFFSET = Offset(-1)
NO_EPOCH = LeaderEpoch(-1)


class TopicPartition(NamedTuple):
    """One log: a topic's name and a partition's number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions by topic, in order."""
    found: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp)
    return found
