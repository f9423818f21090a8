"""Requests of a follower to its leader besides Fetch: where epochs end, where the log ends and begins.

Owns: `LeaderQueries`, which builds OffsetForLeaderEpoch v4 and ListOffsets v7 with a replica id. It decides nothing.

What may fail: OSError, TimeoutError, WireError of the peer client.
Source: Kafka's `RemoteLeaderEndPoint`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ErrorCode
from ..ids import TopicPartition
from ..wire import messages

if TYPE_CHECKING:
    from ..ids import NodeId
    from ..network.peers import PeerClient
    from .partition import Partition

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 7
OFFSET_FOR_LEADER_EPOCH, OFFSET_FOR_LEADER_EPOCH_VERSION = 23, 4
_LATEST, _EARLIEST = -1, -2


class EpochEnd(NamedTuple):
    """The leader's answer for one partition; -1 where it knows no epoch or end."""

    error: ErrorCode
    epoch: int
    end_offset: int


class LeaderQueries:
    """Queries over one peer client."""

    def __init__(self, client: PeerClient, node_id: NodeId, timeout_ms: int) -> None:
        self._client = client
        self._node_id = node_id
        self._timeout_ms = timeout_ms

    async def end_offsets(self, queries: Sequence[tuple[Partition, int, int]]) -> dict[TopicPartition, EpochEnd]:
        """Where each epoch ends at the leader; a query is (partition, current leader epoch, epoch)."""
        key, version = OFFSET_FOR_LEADER_EPOCH, OFFSET_FOR_LEADER_EPOCH_VERSION
        s = messages.schema(key, version, "request")
        topics: dict[str, list[object]] = {}
        for partition, current, epoch in queries:
            topic, index = partition.topic_partition
            topics.setdefault(topic, []).append(
                s.OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
            )
        entity = s.OffsetForLeaderEpochRequest(
            replica_id=self._node_id,
            topics=tuple(s.OffsetForLeaderTopic(topic=topic, partitions=tuple(rows)) for topic, rows in topics.items()),
        )
        response = await self._client.request(key, version, entity, self._timeout_ms)
        return {
            TopicPartition(topic.topic, row.partition): EpochEnd(row.error_code, row.leader_epoch, row.end_offset)
            for topic in response.topics
            for row in topic.partitions
        }

    async def offset(self, partition: Partition, epoch: int, *, latest: bool) -> int | None:
        """The leader's log end (its answer to a replica) or log start; None when it refuses."""
        topic, index = partition.topic_partition
        s = messages.schema(LIST_OFFSETS, LIST_OFFSETS_VERSION, "request")
        row = s.ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=_LATEST if latest else _EARLIEST
        )
        entity = s.ListOffsetsRequest(
            replica_id=self._node_id, isolation_level=0, topics=(s.ListOffsetsTopic(name=topic, partitions=(row,)),)
        )
        response = await self._client.request(LIST_OFFSETS, LIST_OFFSETS_VERSION, entity, self._timeout_ms)
        found = response.topics[0].partitions[0]
        return None if found.error_code is not ErrorCode.none else int(found.offset)
