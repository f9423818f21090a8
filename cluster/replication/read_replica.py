"""The replica from which a consumer should read: one in its rack (KIP-392).

Owns: `ReadReplicas`, the leader's choice by `replica.selector.class`. Without that setting consumers read from the
leader. With `RackAwareReplicaSelector` (by Kafka's Java name) a consumer that names its rack gets a follower there, if
the leader is in another rack. Only a follower qualifies that is alive on the consumer's listener, in the ISR, and has
the offset that the consumer wants; of several, the one with the most records, then the one caught up last.

Source: Kafka's `ReplicaManager.findPreferredReadReplica`, `RackAwareReplicaSelector`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..ids import NO_NODE, NodeId

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from .cluster_metadata import ClusterMetadata
    from .fetch_reads import PreferredReplica
    from .partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReadReplicas:
    """Recommends replicas to the consumers of the partitions that this broker leads."""

    def __init__(self, node_id: NodeId, config: BrokerConfig, metadata: ClusterMetadata) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._enabled = config.text("replica.selector.class") == RACK_AWARE

    def chooser(self, rack: str, listener: str) -> PreferredReplica | None:
        """The choice for one consumer; None when it reads from the leader anyway."""
        if not self._enabled or not rack:
            return None
        return partial(self._preferred, rack, listener)

    def _preferred(self, rack: str, listener: str, partition: Partition, offset: int) -> NodeId:
        """The follower that a consumer in `rack` should read from `offset` on; -1: this leader."""
        if not partition.is_leader or self._rack(self._node_id, listener) == rack:
            return NO_NODE
        found = [
            (remote.log_end_offset, remote.last_caught_up_ms, node)
            for node in partition.followers
            if (remote := partition.remote(node)) is not None
            and node in partition.isr
            and remote.log_start_offset <= offset <= remote.log_end_offset
            and self._rack(node, listener) == rack
        ]
        return max(found)[2] if found else NO_NODE

    def _rack(self, node: NodeId, listener: str) -> str | None:
        return self._metadata.rack(node, listener)
