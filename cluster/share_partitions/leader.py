"""The share-partitions of a broker: the wiring of this room (see its head for the modules)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..host.seam import Host
from ..replication.current_leaders import CurrentLeaders
from ..wire.api_table import ApiRow
from .dead_letters import DeadLetterQueues, QueueTopics
from .directory import ShareDirectory
from .share_api import ShareApi

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..replication import ReplicaManager
    from ..replication.cluster_metadata import ClusterMetadata
    from ..share_coordinator import ShareCoordinator


class SharePartitions:
    """Share groups on the leaders of partitions."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
        metadata: ClusterMetadata,
        coordinator: ShareCoordinator,
        topics: QueueTopics,
    ) -> None:
        queues = DeadLetterQueues(host, config, cache, topics, coordinator.peers)
        self.shares = ShareDirectory(host, config, replicas, coordinator.persister, queues)
        leaders = CurrentLeaders(replicas.directory, metadata)
        self._api = ShareApi(host, config, cache, self.shares, replicas.wake_ups.share_fetches, leaders)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table that this room serves."""
        return self._api.handlers()

    def end_locks(self, group_id: str, member: str = "") -> int:
        """End the acquisition locks of a group, or of one of its members, now; returns how many records were locked."""
        return sum(
            led.end_locks(name)
            for led in self.shares
            if led.share.group_id == group_id
            for name in ([member] if member else led.members())
        )

    async def stop(self) -> None:
        """Forget every share-partition; no lock ends any more."""
        self.shares.close()
