"""The registry's state of the cluster as frozen values, for faults, tests and commands.

Owns: `ClusterView`, `PartitionView`, and `parse`, which makes them of the registry's paths and their JSON.
What may fail: ValueError or KeyError for JSON that no broker of Harrow or of Kafka 3.9 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ids import TopicPartition
from .registry.paths import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH, TOPICS, partition_of_state_path


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition; `leader` is -1 while it has none."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The registered brokers, the active controller, and the state of each partition by topic and number."""

    live: frozenset[int] = frozenset()
    controller: int | None = None
    controller_epoch: int = 0
    topics: Mapping[str, Mapping[int, PartitionView]] = field(default_factory=dict[str, dict[int, PartitionView]])

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        """One partition, or None when the registry has no state of it."""
        return self.topics.get(topic, {}).get(partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionView]]:
        """Every partition of every topic."""
        for topic, partitions in self.topics.items():
            for number, view in partitions.items():
                yield TopicPartition(topic, number), view


def parse(tree: Mapping[str, str]) -> ClusterView:
    """Make the view of `{path: JSON}`, as `{"/brokers/ids/1": "{…}", …}`."""
    topics: dict[str, dict[int, PartitionView]] = {}
    replicas: dict[str, dict[str, list[int]]] = {}
    live: set[int] = set()
    for path, data in sorted(tree.items()):
        above, _, name = path.rpartition("/")
        if above == BROKER_IDS:
            live.add(int(name))
        elif above == TOPICS:
            replicas[name] = json.loads(data)["partitions"]
            topics[name] = {}
        elif (tp := partition_of_state_path(path)) is not None:
            state: dict[str, Any] = json.loads(data)
            topics[tp.topic][tp.partition] = PartitionView(
                leader=state["leader"],
                leader_epoch=state["leader_epoch"],
                isr=tuple(state["isr"]),
                replicas=tuple(replicas.get(tp.topic, {}).get(str(tp.partition), ())),
            )
    controller = tree.get(CONTROLLER)
    epoch = tree.get(CONTROLLER_EPOCH)
    return ClusterView(
        live=frozenset(live),
        controller=json.loads(controller)["brokerid"] if controller else None,
        controller_epoch=int(epoch) if epoch else 0,
        topics=topics,
    )
