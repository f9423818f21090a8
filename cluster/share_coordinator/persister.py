"""How a broker keeps the state of share-partitions: `Persister`, which group coordinators and partition leaders use.

Each operation raises `KafkaError` with the error that the share coordinator answered, or with
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, … once its attempts ended; the caller decides what its client gets.

`CoordinatorPersister` sends a request to the broker that leads the share-partition's partition of
`__share_group_state`, and calls the service in the process where that is this broker. The first operation creates the
topic. While the coordinator moves, loads or cannot be reached, the operation is tried again, `ATTEMPTS` times with
growing pauses. An operation that was repeated may have taken effect before; a second time, each has the same effect.

Source: Kafka's Persister, DefaultStatePersister, PersisterStateManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..config import BrokerConfig
from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host
from ..ids import NO_NODE, LeaderEpoch, NodeId, Offset, TopicPartition
from ..internal_topics import SHARE_STATE, partition_for
from ..network.peer_connections import PeerConnections
from ..wire import messages
from ..wire.api_keys import ApiKey
from .service import ShareService
from .values import DeliveryState, SharePartition, ShareState, StateBatch, StateSummary

if TYPE_CHECKING:
    from ..coordinators.find_coordinator import TopicCreation
    from ..metadata import MetadataCache

ATTEMPTS = 12
FIRST_PAUSE_MS, LAST_PAUSE_MS = 50, 1_000
"""12 attempts take about 8 s: longer than the coordinator needs to move after a broker's session has expired."""
AGAIN = frozenset(
    (ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)
)
"""Errors of a coordinator that moves or loads."""
VERSIONS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE: 0,
    ApiKey.WRITE_SHARE_GROUP_STATE: 1,
    ApiKey.DELETE_SHARE_GROUP_STATE: 0,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: 1,
}
TOPIC_ROWS = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "InitializeStateData",
    ApiKey.READ_SHARE_GROUP_STATE: "ReadStateData",
    ApiKey.WRITE_SHARE_GROUP_STATE: "WriteStateData",
    ApiKey.DELETE_SHARE_GROUP_STATE: "DeleteStateData",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "ReadStateSummaryData",
}
"""The class of a topic's row in each request."""


class Persister(Protocol):
    """Keeps the state of share-partitions at share coordinators."""

    async def initialize(self, share: SharePartition, *, state_epoch: int, start_offset: Offset) -> None:
        """Create the state, or begin it again with a higher state epoch (InitializeShareGroupState)."""
        ...

    async def read(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> ShareState:
        """The state, for the leader of the topic-partition in this epoch (ReadShareGroupState)."""
        ...

    async def write(
        self,
        share: SharePartition,
        *,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Store changes (WriteShareGroupState); returns when all in-sync replicas have them."""
        ...

    async def delete(self, share: SharePartition) -> None:
        """Forget the state; nothing where there is none (DeleteShareGroupState)."""
        ...

    async def summary(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> StateSummary:
        """The state without its batches (ReadShareGroupStateSummary)."""
        ...


class CoordinatorPersister:
    """The persister of a broker; see the module's head."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        cache: MetadataCache,
        topics: TopicCreation,
        service: ShareService,
        peers: PeerConnections,
    ) -> None:
        self._host = host
        self._config = config
        self._cache = cache
        self._topics = topics
        self._service = service
        self._peers = peers

    async def initialize(self, share: SharePartition, *, state_epoch: int, start_offset: Offset) -> None:
        """As `Persister`."""
        await self._keep(
            share,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            {"state_epoch": state_epoch, "start_offset": start_offset},
            lambda: self._service.initialize(share, state_epoch=state_epoch, start_offset=start_offset),
        )

    async def read(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> ShareState:
        """As `Persister`."""
        found = await self._keep(
            share,
            ApiKey.READ_SHARE_GROUP_STATE,
            {"leader_epoch": leader_epoch},
            lambda: self._service.read(share, leader_epoch=leader_epoch),
        )
        if isinstance(found, ShareState):
            return found
        batches = tuple(
            StateBatch(row.first_offset, row.last_offset, DeliveryState(row.delivery_state), row.delivery_count)
            for row in found.state_batches
        )
        return ShareState(found.state_epoch, leader_epoch, found.start_offset, batches)

    async def write(
        self,
        share: SharePartition,
        *,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """As `Persister`."""
        s = messages.schema(ApiKey.WRITE_SHARE_GROUP_STATE, VERSIONS[ApiKey.WRITE_SHARE_GROUP_STATE], "request")
        rows = tuple(
            s.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=int(batch.state),
                delivery_count=batch.delivery_count,
            )
            for batch in batches
        )
        fields = {
            "state_epoch": state_epoch,
            "leader_epoch": leader_epoch,
            "start_offset": start_offset,
            "delivery_complete_count": delivery_complete_count,
            "state_batches": rows,
        }
        await self._keep(
            share,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            fields,
            lambda: self._service.write(
                share,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=batches,
            ),
        )

    async def delete(self, share: SharePartition) -> None:
        """As `Persister`."""
        await self._keep(share, ApiKey.DELETE_SHARE_GROUP_STATE, {}, lambda: self._service.delete(share))

    async def summary(self, share: SharePartition, *, leader_epoch: LeaderEpoch) -> StateSummary:
        """As `Persister`."""
        found = await self._keep(
            share,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
            {"leader_epoch": leader_epoch},
            lambda: self._service.summary(share),
        )
        if isinstance(found, StateSummary):
            return found
        return StateSummary(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count)

    async def _keep(
        self, share: SharePartition, api: ApiKey, fields: dict[str, Any], here: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Run an operation at the coordinator, again while that moves; its result, or the row of the response."""
        pause_ms = FIRST_PAUSE_MS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._once(share, api, fields, here)
            except KafkaError as error:
                if error.code not in AGAIN or attempt == ATTEMPTS:
                    raise
            except (HarrowError, OSError, TimeoutError) as error:
                if attempt == ATTEMPTS:
                    raise KafkaError(ErrorCode.coordinator_not_available, str(error)) from error
            await self._host.tasks.sleep(pause_ms)
            pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)
        raise AssertionError("the last attempt returns or raises")

    async def _once(
        self, share: SharePartition, api: ApiKey, fields: dict[str, Any], here: Callable[[], Awaitable[Any]]
    ) -> Any:
        coordinator = await self._coordinator(share)
        if coordinator == self._cache.node_id:
            return await here()
        version = VERSIONS[api]
        s = messages.schema(api, version, "request")
        row = s.PartitionData(partition=share.partition, **fields)
        topic = getattr(s, TOPIC_ROWS[api])(topic_id=share.topic_id, partitions=(row,))
        response = await self._peers.request(
            coordinator, api, version, s.root(group_id=share.group_id, topics=(topic,))
        )
        found = [row for result in response.results for row in result.partitions]
        if len(found) != 1:
            raise KafkaError(
                ErrorCode.unknown_server_error, f"broker {coordinator} answered {len(found)} rows for {share}"
            )
        if found[0].error_code is not ErrorCode.none:
            raise KafkaError(found[0].error_code, found[0].error_message or "")
        return found[0]

    async def _coordinator(self, share: SharePartition) -> NodeId:
        """The broker that coordinates a share-partition; KafkaError(coordinator_not_available) while there is none."""
        count = self._cache.partition_count(SHARE_STATE.name)
        if count == 0:
            await self._topics.ensure_topic(
                SHARE_STATE.name,
                partitions=SHARE_STATE.partitions(self._config),
                replication_factor=SHARE_STATE.replication_factor(self._config),
                config=SHARE_STATE.settings(self._config),
            )
            count = self._cache.partition_count(SHARE_STATE.name)
        leader = NO_NODE
        if count:
            leader = self._cache.leader(TopicPartition(SHARE_STATE.name, partition_for(share.coordinator_key, count)))
        if leader == NO_NODE or not self._cache.is_alive(leader):
            raise KafkaError(ErrorCode.coordinator_not_available, f"no broker coordinates {share.coordinator_key} now")
        return leader
