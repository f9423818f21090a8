"""The leader that a refused Produce or Fetch names, so that the client need not ask for metadata (KIP-951).

Owns: `CurrentLeaders`. The replica of a partition on this broker knows the leader first; without a replica the metadata
cache says it. A response names an endpoint only for a live broker that has the client's listener.

Source: Kafka's `KafkaApis.getCurrentLeader`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..ids import NO_EPOCH, NO_NODE, LeaderEpoch, NodeId, TopicPartition
from ..wire.primitives import NodeEndpoint

if TYPE_CHECKING:
    from .cluster_metadata import ClusterMetadata
    from .partition_directory import PartitionDirectory

MOVED = frozenset((ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch))
"""The errors with which a response names the leader."""


class CurrentLeaders:
    """Leaders and their endpoints, for responses with an error of `MOVED`."""

    def __init__(self, directory: PartitionDirectory, metadata: ClusterMetadata) -> None:
        self._directory = directory
        self._metadata = metadata

    def of(self, tp: TopicPartition) -> tuple[NodeId, LeaderEpoch]:
        """The leader of a partition and its epoch; -1 each where it is not known."""
        replica = self._directory.partition(tp)
        if replica is not None and replica.leader_epoch >= 0:
            return NodeId(replica.leader), LeaderEpoch(replica.leader_epoch)
        return self._metadata.leader(tp) or (NO_NODE, NO_EPOCH)

    def endpoints(self, leaders: Iterable[int], listener: str) -> tuple[NodeEndpoint, ...]:
        """The endpoint of each leader on the client's listener."""
        found: list[NodeEndpoint] = []
        for number in dict.fromkeys(leaders):
            node = NodeId(number)
            address = self._metadata.address(node, listener)
            if address is not None:
                rack = self._metadata.rack(node, listener)
                found.append(NodeEndpoint(number, address.host, address.port, rack))
        return tuple(found)
