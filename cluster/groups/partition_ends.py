"""Where topic-partitions end, as their leaders say: for the lag of share groups.

Owns: `PartitionEnds`, which sends ListOffsets to leaders, and its connections, by broker; one to this broker too, so
that each leader is asked in the same way.

What may fail: KafkaError with the leader's error; LEADER_NOT_AVAILABLE, and UNKNOWN_SERVER_ERROR where the leader is
not reached.
Source: Kafka's NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import ErrorCode, HarrowError, KafkaError
from ..ids import NodeId, Offset, TopicPartition
from ..wire import messages
from ..wire.api_keys import ApiKey

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..network.peers import PeerClient

VERSION, CONSUMER, LATEST, READ_UNCOMMITTED = 7, -1, -1, 0


class PartitionEnds:
    """Ends of topic-partitions."""

    def __init__(self, cache: MetadataCache, connect: Callable[[NodeId], PeerClient | None], timeout_ms: int) -> None:
        self._cache = cache
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._clients: dict[NodeId, PeerClient] = {}

    async def end_offset(self, tp: TopicPartition) -> Offset:
        """The high watermark; KafkaError."""
        s = messages.schema(ApiKey.LIST_OFFSETS, VERSION, "request")
        row = s.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=-1, timestamp=LATEST)
        entity = s.ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=READ_UNCOMMITTED,
            topics=(s.ListOffsetsTopic(name=tp.topic, partitions=(row,)),),
        )
        client = self._client(self._cache.leader(tp))
        try:
            response = await client.request(ApiKey.LIST_OFFSETS, VERSION, entity, self._timeout_ms)
        except (OSError, HarrowError) as error:  # TimeoutError is an OSError
            raise KafkaError(ErrorCode.unknown_server_error, f"the leader of {tp}: {error}") from None
        found = response.topics[0].partitions[0]
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code)
        return Offset(found.offset)

    def _client(self, node_id: NodeId) -> PeerClient:
        endpoint = self._cache.peer_endpoint(node_id)
        known = self._clients.get(node_id)
        if known is not None and endpoint is not None and known.address == (endpoint.host, endpoint.port):
            return known
        made = None if endpoint is None else self._connect(node_id)
        if made is None:
            raise KafkaError(ErrorCode.leader_not_available)
        if known is not None:
            known.close()
        self._clients[node_id] = made
        return made

    def close(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
