"""What replication asks of the broker's metadata (spec C4, C8).

Owns: `ClusterMetadata`, an interface. The broker implements it with its metadata cache and its topic admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..ids import LeaderEpoch, NodeId, TopicPartition
    from ..listeners import Address
    from ..wire.topic_ids import UUID


class ClusterMetadata(Protocol):
    """The cluster beyond this broker's replicas."""

    def is_alive(self, node_id: NodeId, /) -> bool:
        """True for a registered broker; only such brokers may join an ISR."""
        ...

    def rack(self, node_id: NodeId, listener: str, /) -> str | None:
        """The rack of a live broker that has this listener; None where it has no rack, or there is no such broker."""
        ...

    def has_partition(self, tp: TopicPartition, /) -> bool:
        """True when the cluster has this partition, on whichever brokers."""
        ...

    def leader(self, tp: TopicPartition, /) -> tuple[NodeId, LeaderEpoch] | None:
        """The leader of a partition and its epoch; None for an unknown partition."""
        ...

    def address(self, node_id: NodeId, listener: str, /) -> Address | None:
        """The advertised address of a live broker's listener; None for any other."""
        ...

    def topic_name(self, topic_id: UUID, /) -> str | None:
        """The name of a topic of the cluster by its id."""
        ...

    async def topic_config(self, topic: str, /) -> Mapping[str, object]:
        """The overrides of a topic, for a new log."""
        ...
