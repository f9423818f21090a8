"""The words of the cluster as types: offsets, epochs, nodes, partitions.

Epochs are told apart by whose they are (spec: "Epoch always says whose"). All are plain `int` at run
time; the types stop a broker epoch from being compared with a leader epoch.
"""

from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""A broker's `node.id`; -1 where there is none (a partition without leader)."""

Offset = NewType("Offset", int)
"""A record's position in its partition's log, from 0; -1 where unknown."""

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
