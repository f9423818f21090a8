"""The transaction coordinator of a broker: which requests it serves, and what it needs of the other rooms (F2 to F7).

Owns: the wiring of this room. Its modules:

    states, transaction     the states, and one transactional id with the transition in progress
    rules                   what the coordinator decides about a request, without I/O
    records                 formats of `__transaction_state`
    shard                   the transactions of one partition, hosted by the coordinator runtime
    service                 the transitions as coroutines
    marker_sender           sends markers to partition leaders
    marker_writer           writes them there
    verification            a partition leader's question whether a producer may append (KIP-890)
    producer_ids            blocks of producer ids
    …_api                   requests and responses

Source: Kafka's TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..controller.topic_node import parse_topic
from ..errors import RegistryError
from ..host.seam import Host
from ..ids import NodeId, TopicPartition
from ..network.peer_connections import PeerConnections
from ..registry import NoNodeError, RegistryClient
from ..registry.paths import topic_path
from ..wire.api_table import ApiRow
from .admin_api import TransactionAdminApi
from .marker_sender import MarkerSender
from .marker_writer import GroupMarkers, MarkerPeers, MarkerWriter
from .producer_api import ProducerApi
from .producer_ids import ProducerIds
from .service import TransactionService
from .verification import CoordinatorQueries

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..network.peers import PeerClient
    from ..replication import ReplicaManager


class TransactionCoordinator:
    """Transactions, and producer ids."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        registry: RegistryClient,
        replicas: ReplicaManager,
        cache: MetadataCache,
        groups: GroupMarkers,
        connect: Callable[[NodeId], PeerClient | None],
    ) -> None:
        timeout_ms = config.number("request.timeout.ms")
        self._registry = registry
        self._peers = PeerConnections(cache, connect, timeout_ms)
        self._writer = MarkerWriter(host, replicas, groups, timeout_ms)
        transport = MarkerPeers(host, self._peers, self._writer)
        self.markers = MarkerSender(host, cache, transport, self._is_deleted)
        ids = ProducerIds(host, registry, cache.node_id)
        self.service = TransactionService(host, config, replicas, cache, ids, self.markers)
        self.queries = CoordinatorQueries(host, cache, self._peers, self.service)
        self._producers = ProducerApi(self.service, ids)
        self._admin = TransactionAdminApi(self.service)
        replicas.on_leadership.append(self.service.runtime.leadership_changed)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table that this room serves."""
        return (*self._producers.handlers(), *self._admin.handlers(), *self._writer.handlers())

    async def _is_deleted(self, tp: TopicPartition) -> bool:
        """True when the registry has no such partition; False while it cannot be reached."""
        try:
            data, _ = await self._registry.get(topic_path(tp.topic))
        except NoNodeError:
            return True
        except RegistryError:
            return False
        return tp.partition not in parse_topic(data)[1]

    async def stop(self) -> None:
        """Unload every shard, and close the connections to other brokers."""
        self.service.runtime.close()
        self._peers.close()
