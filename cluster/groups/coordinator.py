"""The group coordinator of a broker: its APIs, and its ties to the other rooms.

Owns: which requests groups serve and in which versions. `offset.commit` and `offset.fetch` stop at v9: v10
names topics by id, and clients step down. The rest is beside it: `service` (routing, effects, loading),
`membership` (the machine), `waits` (its deadlines), `offsets`, `records` (formats), the `…_api` modules (requests).

Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..host.seam import Host
from ..purgatory import Purgatory
from ..wire.api import ApiRow
from ..wire.api_keys import ApiKey
from .admin_api import AdminApi
from .membership_api import MembershipApi
from .offsets_api import OffsetsApi
from .service import GroupService

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..replication import ReplicaManager


class GroupCoordinator:
    """Classic consumer groups and committed offsets."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        replicas: ReplicaManager,
        cache: MetadataCache,
    ) -> None:
        self.service = GroupService(host, config, replicas, cache)
        self._membership = MembershipApi(self.service)
        self._offsets = OffsetsApi(self.service)
        self._admin = AdminApi(self.service)
        replicas.on_leadership.append(self.service.runtime.leadership_changed)

    def purgatories(self) -> Iterable[Purgatory]:
        """Where rebalances and sessions wait."""
        return (self.service.waits.rebalances, self.service.waits.heartbeats)

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table that groups serve."""
        return (
            ApiRow(ApiKey.OFFSET_COMMIT, 2, 9, self._offsets.offset_commit),
            ApiRow(ApiKey.OFFSET_FETCH, 1, 9, self._offsets.offset_fetch),
            ApiRow(ApiKey.JOIN_GROUP, 0, 9, self._membership.join_group),
            ApiRow(ApiKey.HEARTBEAT, 0, 4, self._membership.heartbeat),
            ApiRow(ApiKey.LEAVE_GROUP, 0, 5, self._membership.leave_group),
            ApiRow(ApiKey.SYNC_GROUP, 0, 5, self._membership.sync_group),
            ApiRow(ApiKey.DESCRIBE_GROUPS, 0, 6, self._admin.describe_groups),
            ApiRow(ApiKey.LIST_GROUPS, 0, 5, self._admin.list_groups),
            ApiRow(ApiKey.DELETE_GROUPS, 0, 2, self._admin.delete_groups),
            ApiRow(ApiKey.OFFSET_DELETE, 0, 0, self._offsets.offset_delete),
        )

    async def stop(self) -> None:
        """Answer everybody who waits NOT_COORDINATOR; nothing expires any more."""
        self.service.runtime.close()
