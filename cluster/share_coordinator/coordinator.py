"""The share coordinator of a broker, and its persister: the wiring of this room (see its head for the modules)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..host.seam import Host
from ..ids import NodeId
from ..network.peer_connections import PeerConnections
from ..wire.api_table import ApiRow
from .persister import CoordinatorPersister
from .service import ShareService
from .state_api import ShareStateApi

if TYPE_CHECKING:
    from ..coordinators.find_coordinator import TopicCreation
    from ..metadata import MetadataCache
    from ..network.peers import PeerClient
    from ..replication import ReplicaManager


class ShareCoordinator:
    """States of share-partitions: those that this broker coordinates, and the way to those of others."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        topics: TopicCreation,
        connect: Callable[[NodeId], PeerClient | None],
    ) -> None:
        self.service = ShareService(host, config, replicas, cache)
        self.peers = PeerConnections(cache, connect, config.number("request.timeout.ms"))
        self.persister = CoordinatorPersister(host, config, cache, topics, self.service, self.peers)
        self._api = ShareStateApi(self.service)
        replicas.on_leadership.append(self.service.runtime.leadership_changed)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table that this room serves."""
        return self._api.handlers()

    async def stop(self) -> None:
        """Unload every shard, and close the connections to other brokers."""
        self.service.runtime.close()
        self.peers.close()
