"""FindCoordinator: which broker coordinates a group or a transactional id.

Owns: the versions of the request, and the creation of an internal topic for the first request. Until the topic
exists and its partition has a leader, the error is COORDINATOR_NOT_AVAILABLE, on which clients try again.

A type that this broker does not serve gets INVALID_REQUEST with a message that says so: clients report the message
instead of trying without end. Source: Kafka's KafkaApis.getCoordinator, AutoTopicCreationManager.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from ..authorizer import CLUSTER, Operation, ResourceType
from ..errors import ErrorCode, HarrowError
from ..host.seam import Host
from ..ids import NO_NODE, NodeId, TopicPartition
from ..internal_topics import InternalTopic, partition_for
from ..listeners import Address
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import denial

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..wire.request import Request

VERSIONS = (0, 6)
BATCHED_KEYS_FROM = 4
"""First version that asks for several keys at the same time (KIP-699)."""


SHARE_FROM = 6
"""First version that may ask for share coordinators, which brokers do (KIP-932)."""
SHARE_KEY = re.compile(r"[^:]*[^:\s][^:]*:[A-Za-z0-9_-]{22}:-?\d+")
"""Source: Kafka's SharePartitionKey.validate."""


class CoordinatorType(IntEnum):
    """Kafka's FindCoordinatorRequest.CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


DESCRIBED: Mapping[int, ResourceType] = {
    CoordinatorType.GROUP: ResourceType.GROUP,
    CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}
"""What a client must be allowed to describe, by the type of the coordinator."""
NOT_SERVED: Mapping[int, str] = {
    CoordinatorType.GROUP: "groups are not supported by this broker",
    CoordinatorType.TRANSACTION: "transactions are not supported by this broker",
    CoordinatorType.SHARE: "share groups are not supported by this broker",
}
"""What the client reads when its type is not among the served ones."""


class CoordinatorMetadata(Protocol):
    """What FindCoordinator needs of the metadata cache."""

    def partition_count(self, topic: str) -> int:
        """Partitions of a topic; 0 where it does not exist."""
        ...

    def leader(self, tp: TopicPartition, /) -> NodeId:
        """Leader of a partition; -1 where there is none."""
        ...

    def address(self, node_id: NodeId, listener: str, /) -> Address | None:
        """The advertised address of a broker's listener; None for a dead broker or an unknown listener."""
        ...


class TopicCreation(Protocol):
    """What FindCoordinator needs of topic administration."""

    async def ensure_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> None:
        """Create the topic unless it exists, and wait until metadata has it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLocation:
    """Where a coordinator is, or why there is none."""

    error: ErrorCode = ErrorCode.none
    message: str | None = None
    node_id: NodeId = NO_NODE
    host: str = ""
    port: int = -1


class FindCoordinator:
    """Handler of FindCoordinator. `served`: coordinator type -> its internal topic."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        metadata: CoordinatorMetadata,
        topic_creation: TopicCreation,
        served: Mapping[CoordinatorType, InternalTopic],
    ) -> None:
        self._host = host
        self._config = config
        self._metadata = metadata
        self._topic_creation = topic_creation
        self._served: Mapping[int, InternalTopic] = {int(kind): topic for kind, topic in served.items()}
        self._creating: set[str] = set()

    def handlers(self) -> Iterable[ApiRow]:
        """FindCoordinator."""
        return (ApiRow(ApiKey.FIND_COORDINATOR, *VERSIONS, self.find_coordinator),)

    def find_coordinator(self, request: Request) -> None:
        """FindCoordinator v0 to v6; from v4 on for several keys at once."""
        body = request.decode()
        s = messages.response(request)
        key_type: int = getattr(body, "key_type", CoordinatorType.GROUP)
        if key_type == CoordinatorType.SHARE and request.version >= SHARE_FROM:
            request.require(Operation.CLUSTER_ACTION, *CLUSTER)
        if request.version < BATCHED_KEYS_FROM:
            location = self._locate(request, key_type, body.key)
            request.respond(s.FindCoordinatorResponse(**_fields(location)))
            return
        coordinators = tuple(
            s.Coordinator(key=key, **_fields(self._locate(request, key_type, key))) for key in body.coordinator_keys
        )
        request.respond(s.FindCoordinatorResponse(coordinators=coordinators))

    def _locate(self, request: Request, key_type: int, key: str) -> CoordinatorLocation:
        kind = DESCRIBED.get(key_type)
        if kind is not None and request.denied(Operation.DESCRIBE, kind, (key,)):
            refused = denial(kind)
            return CoordinatorLocation(error=refused.code, message=refused.message)
        listener = request.listener.name
        topic = self._served.get(key_type)
        if topic is None:
            message = NOT_SERVED.get(key_type, f"unknown coordinator type {key_type}")
            return CoordinatorLocation(error=ErrorCode.invalid_request, message=message)
        if key_type == CoordinatorType.SHARE and not (request.version >= SHARE_FROM and SHARE_KEY.fullmatch(key)):
            message = f"the key of a share coordinator is group:topic id:partition, from version {SHARE_FROM} on"
            return CoordinatorLocation(error=ErrorCode.invalid_request, message=message)
        count = self._metadata.partition_count(topic.name)
        if count == 0:
            self._begin_creation(topic)
            return _unavailable(f"{topic.name} is being created")
        partition = partition_for(key, count)
        leader = self._metadata.leader(TopicPartition(topic.name, partition))
        address = self._metadata.address(leader, listener)
        if address is None:
            return _unavailable(f"{topic.name}-{partition} has no leader on {listener} now")
        return CoordinatorLocation(node_id=leader, host=address.host, port=address.port)

    def _begin_creation(self, topic: InternalTopic) -> None:
        if topic.name in self._creating:
            return
        self._creating.add(topic.name)
        self._host.tasks.spawn(self._create(topic), name=f"create-{topic.name}")

    async def _create(self, topic: InternalTopic) -> None:
        try:
            await self._topic_creation.ensure_topic(
                topic.name,
                partitions=topic.partitions(self._config),
                replication_factor=topic.replication_factor(self._config),
                config=topic.settings(self._config),
            )
        except (HarrowError, OSError, TimeoutError) as error:
            # The client sends its request again, which begins the next attempt.
            self._host.trace.log("warning", f"cannot create {topic.name}: {error}")
        finally:
            self._creating.discard(topic.name)


def _unavailable(message: str) -> CoordinatorLocation:
    return CoordinatorLocation(error=ErrorCode.coordinator_not_available, message=message)


def _fields(location: CoordinatorLocation) -> dict[str, Any]:
    return {
        "error_code": location.error,
        "error_message": location.message,
        "node_id": location.node_id,
        "host": location.host,
        "port": location.port,
    }
