"""Where topic-partitions end, as their leaders say: for the lag of share groups.

Owns: `PartitionEnds`, which sends ListOffsets to leaders; to this broker too, so that each leader is asked in the same
way.

What may fail: KafkaError with the leader's error; LEADER_NOT_AVAILABLE, and UNKNOWN_SERVER_ERROR where the leader is
not reached.
Source: Kafka's NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError, KafkaError
from ..ids import Offset, TopicPartition
from ..wire import messages
from ..wire.api_keys import ApiKey

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..network.peer_connections import PeerConnections

VERSION, CONSUMER, LATEST, READ_UNCOMMITTED = 7, -1, -1, 0


class PartitionEnds:
    """Ends of topic-partitions."""

    def __init__(self, cache: MetadataCache, peers: PeerConnections) -> None:
        self._cache = cache
        self._peers = peers

    async def end_offset(self, tp: TopicPartition) -> Offset:
        """The high watermark; KafkaError."""
        s = messages.schema(ApiKey.LIST_OFFSETS, VERSION, "request")
        row = s.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=LATEST)
        entity = s.ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=READ_UNCOMMITTED,
            topics=(s.ListOffsetsTopic(name=tp.topic, partitions=(row,)),),
        )
        leader = self._cache.leader(tp)
        if self._cache.peer_endpoint(leader) is None:
            raise KafkaError(ErrorCode.leader_not_available)
        try:
            response = await self._peers.request_any(leader, ApiKey.LIST_OFFSETS, VERSION, entity)
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            raise KafkaError(ErrorCode.unknown_server_error, f"the leader of {tp}: {error}") from None
        found = response.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code)
        return Offset(found.offset)
