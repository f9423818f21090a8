"""What a leader learns from a follower's fetch: its log end, hence the high watermark and the ISR (C1, C4).

Owns: `FollowerFetchState`. Only a follower whose log is a prefix of the leader's counts: a fetch that the leader epoch
fences, or whose last epoch diverges, moves nothing (KIP-320, KIP-595).

Source: Kafka's `Partition.updateFollowerFetchState`, `ReplicaManager.updateFollowerFetchState`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError
from ..events.partitions import IsrExpansionProposed
from ..ids import BrokerEpoch, NodeId, Offset

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..wire.fetch import FetchPartition, FetchRequest
    from .cluster_metadata import ClusterMetadata
    from .fetch_reads import RequestedPartition
    from .fetch_session import FetchSessionRow
    from .isr_state import IsrProposal
    from .isr_writes import IsrWrites
    from .offset_trace import OffsetTrace
    from .partition import Partition
    from .wake_ups import WakeUps

_NONE = ErrorCode.none


class FollowerFetchState:
    """Takes in the offsets that followers fetch from."""

    def __init__(
        self, host: Host, wake_ups: WakeUps, isr_writes: IsrWrites, offsets: OffsetTrace, metadata: ClusterMetadata
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._wake_ups = wake_ups
        self._isr_writes = isr_writes
        self._offsets = offsets

    def update(self, fetch: FetchRequest, rows: Sequence[RequestedPartition] | Sequence[FetchSessionRow]) -> bool:
        """Record the offsets of `rows` of `fetch`; True when one of them must be answered at once.

        A row that is refused has its `error` set.
        """
        urgent = acknowledged = False
        node, epoch = NodeId(fetch.replica_id), BrokerEpoch(fetch.replica_epoch)
        now_ms = self._host.clock.monotonic_ms()
        wake_ups, offsets = self._wake_ups, self._offsets
        for requested in rows:
            partition, row = requested.partition, requested.row
            if partition is None or requested.error is not _NONE:
                continue
            try:
                if not is_prefix(partition, row):
                    urgent = True
                    continue
                moved = partition.follower_fetched(
                    node, Offset(row.fetch_offset), Offset(row.log_start_offset), now_ms, epoch
                )
            except KafkaError as refused:
                requested.error = refused.code
                urgent = True
                continue
            if offsets.every:
                offsets.follower(partition, node, row.fetch_offset)
            if moved:
                acknowledged = True
                wake_ups.high_watermark_moved(partition, "follower-fetch")
            if wake_ups.deletions.delayed:
                wake_ups.deletions.check_and_complete(partition.topic_partition)
            if node not in partition.isr:
                proposal = partition.propose_expansion(node)
                if proposal is not None:
                    self._trace_expansion(partition, node, proposal)
                    self._isr_writes.submit(partition, proposal)
        if acknowledged:
            # Producers wait for it, while this fetch itself is about to wait.
            self._host.network.flush()
        return urgent

    def _trace_expansion(self, partition: Partition, node: NodeId, proposal: IsrProposal) -> None:
        """Say which replicas were live when `node` was proposed: a verdict reads it (`fenced-in-isr`)."""
        topic, index = partition.topic_partition
        self._host.trace.emit(
            IsrExpansionProposed(
                topic=topic,
                partition=index,
                leader=partition.node_id,
                leader_epoch=proposal.leader_epoch,
                isr=tuple(proposal.isr),
                added=node,
                live=tuple(replica for replica in partition.replicas if self._metadata.is_alive(replica)),
            )
        )


def is_prefix(partition: Partition, row: FetchPartition) -> bool:
    """True when the records that the follower has below its fetch offset are those of this log."""
    log = partition.log
    if not log.log_start_offset <= row.fetch_offset <= log.log_end_offset:
        return False
    last = row.last_fetched_epoch
    return last < 0 or partition.diverging(row.fetch_offset, last) is None
