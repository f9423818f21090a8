"""FindCoordinator: which broker coordinates a group.

Owns: the request's versions, and the creation of `__consumer_offsets` when the first group is asked for;
until it has a leader the answer is COORDINATOR_NOT_AVAILABLE, on which clients try again.

Transactions and share groups have no coordinator yet: INVALID_REQUEST with a message that says so, which
clients report instead of trying for ever. Source: Kafka's KafkaApis.getCoordinator,
AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, HarrowError
from ..ids import NO_NODE, TopicPartition
from ..internal_topics import OFFSETS, partition_for
from ..wire import messages
from .service import GroupService

if TYPE_CHECKING:
    from ..metadata import TopicAdmin
    from ..wire.request import Request

GROUP = 0
MANY_KEYS_FROM = 4
WITHOUT_COORDINATOR: Mapping[int, str] = {
    1: "transactions are not supported by this broker yet",
    2: "share groups are not supported by this broker",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A coordinator, or why there is none."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1


class FindCoordinatorApi:
    """Handler of FindCoordinator."""

    def __init__(self, service: GroupService, topic_admin: TopicAdmin) -> None:
        self._service = service
        self._topic_admin = topic_admin
        self._creating = False

    def find_coordinator(self, request: Request) -> None:
        """FindCoordinator v0 to v6; from v4 on for several keys at once."""
        asked = request.decode()
        s = messages.response(request)
        key_type: int = getattr(asked, "key_type", GROUP)
        if request.version < MANY_KEYS_FROM:
            found = self._find(key_type, asked.key)
            request.respond(s.FindCoordinatorResponse(**_fields(found)))
            return
        coordinators = tuple(
            s.Coordinator(key=key, **_fields(self._find(key_type, key)))
            for key in asked.coordinator_keys
        )
        request.respond(s.FindCoordinatorResponse(coordinators=coordinators))

    def _find(self, key_type: int, key: str) -> Found:
        if key_type != GROUP:
            message = WITHOUT_COORDINATOR.get(key_type, f"unknown coordinator type {key_type}")
            return Found(error=ErrorCode.invalid_request, message=message)
        cache = self._service.cache
        count = cache.partition_count(OFFSETS.name)
        if count == 0:
            self._create()
            return _unavailable("__consumer_offsets is being created")
        partition = partition_for(key, count)
        leader = cache.leader(TopicPartition(OFFSETS.name, partition))
        endpoint = cache.client_endpoint(leader)
        if endpoint is None:
            return _unavailable(f"{OFFSETS.name}-{partition} has no leader now")
        return Found(node_id=leader, host=endpoint[0], port=endpoint[1])

    def _create(self) -> None:
        if self._creating:
            return
        self._creating = True
        self._service.host.tasks.spawn(self._create_topic(), name="create-consumer-offsets")

    async def _create_topic(self) -> None:
        try:
            await self._topic_admin.ensure_topic(
                OFFSETS.name,
                partitions=OFFSETS.partitions(self._service.config),
                replication_factor=OFFSETS.replication_factor(self._service.config),
                config=OFFSETS.settings(self._service.config),
            )
        except (HarrowError, OSError, TimeoutError) as error:
            # Clients ask again, and so do we.
            self._service.host.trace.log("warning", f"cannot create {OFFSETS.name}: {error}")
        finally:
            self._creating = False


def _unavailable(message: str) -> Found:
    return Found(error=ErrorCode.coordinator_not_available, message=message)


def _fields(found: Found) -> dict[str, Any]:
    return {
        "error_code": found.error,
        "error_message": found.message,
        "node_id": found.node_id,
        "host": found.host,
        "port": found.port,
    }
