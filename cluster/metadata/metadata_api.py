"""Metadata, DescribeCluster and UpdateMetadata: reads and updates of the metadata cache.

Owns: the handlers of the three. An unknown topic is created when request and settings allow it, and the response
(unknown_topic_or_partition, as in Kafka) makes the client request it again; everything else is read from the cache.

A request with a topic id goes by ids: its names are ignored, and so are its topics without an id (KIP-516). Versions 10
and 11 have the field, but no broker serves it: such a request is refused as a whole.

Source: Apache Kafka's `KafkaApis.handleTopicMetadataRequest`, `ZkMetadataCache.getPartitionMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError
from ..events.brokers import UnknownTopicAsked
from ..host.seam import Trace
from ..ids import NO_EPOCH, NO_NODE
from ..internal_topics import INTERNAL_TOPICS
from ..listeners import Address
from ..topic_names import is_valid_topic_name
from ..wire import messages
from ..wire.request import Request
from .cache import LiveBroker, MetadataCache, PartitionInfo, TopicInfo
from .topic_admin import TopicAdmin

__all__ = ["OPERATIONS_UNASKED", "MetadataApi"]

OPERATIONS_UNASKED = -(2**31)
Requested = tuple[ErrorCode, str | None, Any, TopicInfo | None]
"""Error, name, id and topic, each None where the response does not say it."""

UNKNOWN_MOST = 100
"""Names of unknown topics that a broker traces: a client must not fill the disk."""
_BROKER_ENDPOINTS = 1
_CONTROLLER_ENDPOINTS = 2
_TOPIC_IDS_FROM = 12
"""From this version of Metadata on: topics may be requested by their id (KIP-516)."""
_LISTENER_NOT_FOUND_FROM = 6
"""From this version of Metadata on: a leader without the client's listener has an error of its own (KIP-226)."""


class MetadataApi:
    """Handlers that read and update the metadata cache."""

    def __init__(self, config: BrokerConfig, cache: MetadataCache, admin: TopicAdmin, trace: Trace) -> None:
        self._config = config
        self._trace = trace
        self._unknown: set[str] = set()
        """Names without a topic for which clients asked, each traced once; at most `UNKNOWN_MOST`."""
        self._cache = cache
        self._admin = admin

    # -------------------------------------------------------------- Metadata

    async def metadata(self, request: Request) -> None:
        """Serve Metadata: all brokers, and the requested topics (all: null; before v1 an empty list)."""
        if self._cache.cluster_id is None:
            await self._admin.load_cluster_id()
        entity = request.decode()
        s = messages.response(request)
        if not _may_name_topics_so(entity):
            request.respond(_refused(s, entity))
            return
        with_operations = getattr(entity, "include_topic_authorized_operations", False)
        listener = request.listener.name
        topics = tuple(
            self._topic(s, found, request if with_operations else None, listener)
            for found in self._requested(entity, request)
        )
        whole = getattr(entity, "include_cluster_authorized_operations", False)
        request.respond(
            s.MetadataResponse(
                brokers=tuple(
                    s.MetadataResponseBroker(node_id=row.node_id, host=address.host, port=address.port, rack=row.rack)
                    for row, address in self._brokers_on(listener)
                ),
                cluster_id=self._cache.cluster_id,
                controller_id=self._cache.controller_id,
                topics=topics,
                cluster_authorized_operations=_cluster_operations(request) if whole else OPERATIONS_UNASKED,
            )
        )

    def _requested(self, entity: Any, request: Request) -> Iterator[Requested]:
        """`(error, name, id, topic)` of each requested topic that the client may know of."""
        if entity.topics is None or (entity.__version__ == 0 and not entity.topics):
            topics = self._cache.topics()
            hidden = _undescribed(request, (each.name for each in topics))
            for each in topics:
                if each.name not in hidden:
                    yield ErrorCode.none, each.name, each.topic_id, each
            return
        failed = ErrorCode.topic_authorization_failed
        may_create = getattr(entity, "allow_auto_topic_creation", True) and self._config.flag(
            "auto.create.topics.enable"
        )
        ids = [row.topic_id for row in entity.topics if _id_of(row) is not None]
        for topic_id in dict.fromkeys(ids):
            topic = self._cache.topic_by_id(topic_id)
            if topic is None:
                yield ErrorCode.unknown_topic_id, None, topic_id, None
            elif _undescribed(request, (topic.name,)):
                yield failed, None, topic_id, None
            else:
                yield ErrorCode.none, topic.name, topic_id, topic
        if ids:
            return
        names = dict.fromkeys(row.name for row in entity.topics)
        hidden = _undescribed(request, names)
        for name in names:
            topic = self._cache.topic(name)
            if name in hidden:
                yield failed, name, None, None
            elif topic is not None:
                yield ErrorCode.none, name, topic.topic_id, topic
            elif may_create and not _may_create(request, name):
                yield failed, name, None, None
            else:
                error = self._absent(name, request.client_id, may_create=may_create)
                yield error, name, None, None

    def _absent(self, name: str, client_id: str, *, may_create: bool) -> ErrorCode:
        if not is_valid_topic_name(name):
            return ErrorCode.invalid_topic_exception
        if not may_create:
            if name not in self._unknown and len(self._unknown) < UNKNOWN_MOST:
                self._unknown.add(name)
                self._trace.emit(UnknownTopicAsked(topic=name, client=client_id))
            return ErrorCode.unknown_topic_or_partition
        return self._admin.auto_create(name)

    def _topic(
        self,
        s: messages.Schema,
        found: Requested,
        operations_for: Request | None,
        listener: str,
    ) -> Any:
        error, name, topic_id, topic = found
        denied = error is ErrorCode.topic_authorization_failed
        partitions: tuple[Any, ...] = ()
        if topic is not None:
            rows = topic.partitions
            partitions = tuple(self._partition(s, number, rows[number], listener) for number in sorted(rows))
        return s.MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS and not denied,
            partitions=partitions,
            topic_authorized_operations=OPERATIONS_UNASKED
            if name is None or operations_for is None or denied
            else operations_for.authorized_operations(ResourceType.TOPIC, name),
        )

    def _partition(self, s: messages.Schema, number: int, row: PartitionInfo, listener: str) -> Any:
        alive = self._cache.is_alive
        error, leader, leader_epoch = ErrorCode.none, row.leader, row.leader_epoch
        if self._cache.address(leader, listener) is None:
            unlisted = alive(leader) and s.version >= _LISTENER_NOT_FOUND_FROM
            error = ErrorCode.listener_not_found if unlisted else ErrorCode.leader_not_available
            leader = NO_NODE
        replicas, isr = row.replicas, row.isr
        if s.version == 0:
            # v0 has no field for offline replicas: it lists the live ones and an error
            replicas = tuple(node_id for node_id in replicas if alive(node_id))
            isr = tuple(node_id for node_id in isr if alive(node_id))
            if error is ErrorCode.none and (len(replicas), len(isr)) != (len(row.replicas), len(row.isr)):
                error = ErrorCode.replica_not_available
        dead = tuple(n for n in row.replicas if n not in row.offline and not alive(n))
        return s.MetadataResponsePartition(
            error_code=error,
            partition_index=number,
            leader_id=leader,
            leader_epoch=leader_epoch if leader_epoch >= 0 else NO_EPOCH,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=row.offline + dead,
        )

    def _brokers_on(self, listener: str) -> Iterator[tuple[LiveBroker, Address]]:
        """The live brokers that advertise `listener`, with that address."""
        for row in self._cache.brokers():
            address = row.addresses.get(listener)
            if address is not None:
                yield row, address

    # ------------------------------------------------------- DescribeCluster

    async def describe_cluster(self, request: Request) -> None:
        """Serve DescribeCluster (KIP-700) with the brokers; controllers have no endpoints of their own."""
        cluster_id = await self._admin.load_cluster_id()
        entity = request.decode()
        endpoints: int = getattr(entity, "endpoint_type", _BROKER_ENDPOINTS)
        if endpoints != _BROKER_ENDPOINTS:
            known = endpoints == _CONTROLLER_ENDPOINTS
            raise KafkaError(
                ErrorCode.mismatched_endpoint_type if known else ErrorCode.unsupported_endpoint_type,
                f"a broker does not serve endpoint type {endpoints}",
            )
        s = messages.response(request)
        brokers = tuple(
            s.DescribeClusterBroker(broker_id=row.node_id, host=address.host, port=address.port, rack=row.rack)
            for row, address in self._brokers_on(request.listener.name)
        )
        whole: bool = entity.include_cluster_authorized_operations
        request.respond(
            s.DescribeClusterResponse(
                cluster_id=cluster_id or "",
                controller_id=self._cache.controller_id,
                brokers=brokers,
                cluster_authorized_operations=_cluster_operations(request) if whole else OPERATIONS_UNASKED,
            )
        )

    # -------------------------------------------------------- UpdateMetadata

    def update_metadata(self, request: Request) -> None:
        """Apply UpdateMetadata; stale controller and broker epochs are refused."""
        self._cache.update(request.decode())
        s = messages.response(request)
        request.respond(s.UpdateMetadataResponse(error_code=ErrorCode.none))


def _undescribed(request: Request, names: Iterable[str]) -> frozenset[str]:
    """The topics of which the client must not know."""
    return request.denied(Operation.DESCRIBE, ResourceType.TOPIC, names)


def _may_create(request: Request, name: str) -> bool:
    return (
        request.unrestricted
        or request.allows(Operation.CREATE, *CLUSTER)
        or request.allows(Operation.CREATE, ResourceType.TOPIC, name)
    )


def _cluster_operations(request: Request) -> int:
    may_know = request.unrestricted or request.allows(Operation.DESCRIBE, *CLUSTER)
    return request.authorized_operations(*CLUSTER) if may_know else 0


def _id_of(row: Any) -> Any:
    """The topic id of a requested topic; None without one, and in a version without the field."""
    return getattr(row, "topic_id", None)


def _may_name_topics_so(entity: Any) -> bool:
    """False where a topic has an id in a version that has only the field, or has neither id nor name."""
    rows = entity.topics or ()
    if any(_id_of(row) is not None for row in rows):
        return bool(entity.__version__ >= _TOPIC_IDS_FROM)
    return all(row.name is not None for row in rows)


def _refused(s: messages.Schema, entity: Any) -> Any:
    code = ErrorCode.invalid_request
    nameless = "" if s.version < _TOPIC_IDS_FROM else None
    topics = tuple(
        s.MetadataResponseTopic(
            error_code=code,
            name=nameless if row.name is None else row.name,
            topic_id=_id_of(row),
            is_internal=False,
            partitions=(),
            topic_authorized_operations=OPERATIONS_UNASKED,
        )
        for row in entity.topics
    )
    return s.MetadataResponse(
        brokers=(),
        cluster_id=None,
        controller_id=NO_NODE,
        topics=topics,
        cluster_authorized_operations=OPERATIONS_UNASKED,
        error_code=code,
    )
