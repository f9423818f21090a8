"""The group coordinator of a broker: which requests it serves, and what it needs of the other rooms.

Owns: the API rows of groups and their versions. The other modules of this room:

    service             routing of a request to the shard of its group
    group_shard         the groups of one partition, hosted by the coordinator runtime
    membership          one group as a state machine (rebalance, group_members, states; membership_values)
    deadlines           the deadlines of groups as delayed operations
    offsets             the committed offsets of one group; offset_expiration, offset_rows, subscriptions
    records             formats of `__consumer_offsets`; stored_group, replayed_groups
    serial_group        operations in turn and deadlines of members, for the groups of the next three; serial_hosting
    consumer/           consumer groups of KIP-848; consumer_hosting begins and converts them
    share/              share groups of KIP-932; share_hosting begins them, and uses the persister
    streams/            streams groups of KIP-1071; streams_hosting begins them, streams_topics creates their topics
    …_api               requests and responses

Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..host.seam import Host
from ..network.peer_connections import PeerConnections
from ..purgatory import Purgatory
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from .admin_api import GroupAdminApi
from .consumer_api import ConsumerApi
from .membership_api import MembershipApi
from .offsets_api import OffsetsApi
from .partition_ends import PartitionEnds
from .service import GroupService
from .share_api import ShareApi
from .share_offsets_api import ShareOffsetsApi
from .streams_api import StreamsApi
from .streams_topics import StreamsTopics, TopicCreator
from .transactional_offsets_api import VERSIONS as TXN_VERSIONS
from .transactional_offsets_api import TransactionalOffsetsApi

if TYPE_CHECKING:
    from ..ids import NodeId
    from ..metadata import MetadataCache
    from ..network.peers import PeerClient
    from ..replication import ReplicaManager
    from ..share_coordinator.persister import Persister


class GroupCoordinator:
    """Consumer groups, classic and of KIP-848, committed offsets, share groups of KIP-932, streams groups of KIP-1071.

    `topics` creates the internal topics of streams groups.
    `persister` keeps the delivery states of share groups; without it, their requests get UNSUPPORTED_VERSION.
    `connect` makes a client of a broker: leaders of topic-partitions say where these end, for the lag of share groups.
    """

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        topics: TopicCreator,
        persister: Persister | None = None,
        connect: Callable[[NodeId], PeerClient | None] | None = None,
    ) -> None:
        self.service = GroupService(host, config, replicas, cache, persister)
        self._membership = MembershipApi(self.service)
        self._offsets = OffsetsApi(self.service)
        self._consumers = ConsumerApi(self.service)
        self._streams = StreamsApi(self.service, StreamsTopics(host, topics))
        self._transactional = TransactionalOffsetsApi(self.service, replicas)
        self.end_transaction = self._transactional.end_transaction
        """Writes the marker of a transaction to a partition of `__consumer_offsets` (F6)."""
        self._admin = GroupAdminApi(self.service)
        self._shares = ShareApi(self.service)
        self._peers = None if connect is None else PeerConnections(cache, connect, config.number("request.timeout.ms"))
        ends = None if self._peers is None else PartitionEnds(cache, self._peers)
        self._share_offsets = ShareOffsetsApi(self.service, ends)
        replicas.on_leadership.append(self.service.runtime.leadership_changed)

    def purgatories(self) -> Iterable[Purgatory]:
        """The purgatories of rebalances and of session timeouts."""
        return (self.service.deadlines.rebalances, self.service.deadlines.heartbeats)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table that this room serves."""
        return (
            ApiRow(ApiKey.OFFSET_COMMIT, 2, 10, self._offsets.offset_commit),
            ApiRow(ApiKey.OFFSET_FETCH, 1, 10, self._offsets.offset_fetch),
            ApiRow(ApiKey.JOIN_GROUP, 0, 9, self._membership.join_group),
            ApiRow(ApiKey.HEARTBEAT, 0, 4, self._membership.heartbeat),
            ApiRow(ApiKey.LEAVE_GROUP, 0, 5, self._membership.leave_group),
            ApiRow(ApiKey.SYNC_GROUP, 0, 5, self._membership.sync_group),
            ApiRow(ApiKey.DESCRIBE_GROUPS, 0, 6, self._admin.describe_groups),
            ApiRow(ApiKey.LIST_GROUPS, 0, 5, self._admin.list_groups),
            ApiRow(ApiKey.DELETE_GROUPS, 0, 3, self._admin.delete_groups),
            ApiRow(ApiKey.TXN_OFFSET_COMMIT, *TXN_VERSIONS, self._transactional.txn_offset_commit),
            ApiRow(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, self._consumers.consumer_group_heartbeat),
            ApiRow(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, self._consumers.consumer_group_describe),
            ApiRow(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 1, self._streams.streams_group_heartbeat),
            ApiRow(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 1, self._streams.streams_group_describe),
            ApiRow(
                ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
                *(0, 0),
                self._streams.streams_group_topology_description_update,
            ),
            ApiRow(ApiKey.OFFSET_DELETE, 0, 0, self._offsets.offset_delete),
            ApiRow(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, self._shares.share_group_heartbeat),
            ApiRow(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, self._shares.share_group_describe),
            ApiRow(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, self._share_offsets.describe_offsets),
            ApiRow(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, self._share_offsets.alter_offsets),
            ApiRow(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, self._share_offsets.delete_offsets),
        )

    async def stop(self) -> None:
        """Unload every shard: each waiting request gets NOT_COORDINATOR, and no deadline runs any more."""
        self.service.runtime.close()
        if self._peers is not None:
            self._peers.close()
