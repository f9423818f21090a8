"""A topic on brokers that a test chose, on every backend: no request of Harrow's own, no trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow import Harrow
from harrow.harness.running_cluster import RunningCluster
from waiting import until


@dataclass(frozen=True, slots=True)
class TwoReplicas:
    """Partition 0 of a topic with two replicas; `leader` led it when it was created."""

    cluster: RunningCluster
    topic: str
    leader: int
    follower: int

    def end(self, node: int) -> int:
        """Return the log end offset of the replica on a running broker."""
        rows = self.cluster.state()[node]
        return next(int(row["leo"]) for row in rows if row["topic"] == self.topic)

    def await_ends(self, end: int) -> None:
        """Wait until both logs end there."""
        both = (self.leader, self.follower)
        until(lambda: all(self.end(node) == end for node in both), f"logs of {both} end at {end}")

    def await_leader(self, node: int) -> None:
        """Wait until `node` leads alone."""
        alone = [node]
        until(
            lambda: self.cluster.leader(self.topic, 0) == node and self.cluster.isr(self.topic, 0) == alone,
            f"broker {node} leads {self.topic} alone",
        )


def two_replicas(harrow: Harrow, topic: str, **config: str) -> TwoReplicas:
    """Create a topic on two brokers that are not the controller."""
    cluster = harrow.cluster
    controller = until(cluster.controller_id, "a controller")
    leader, follower, *_ = sorted(node for node in cluster.brokers if node != controller)
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    new = NewTopic(topic, 1, replica_assignment=[[leader, follower]], config=config)
    admin.create_topics([new])[topic].result(30)
    placed = TwoReplicas(cluster, topic, leader, follower)
    until(lambda: cluster.leader(topic, 0) == leader, f"broker {leader} leads {topic}")
    cluster.await_full_isr(30)
    return placed
