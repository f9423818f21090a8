"""The inter-broker requests of a cluster with a ZooKeeper-style controller, as kio entities.

Owns: LeaderAndIsr v7 (key 4), StopReplica v4 (5), UpdateMetadata v8 (6), which the controller sends to brokers, and
ControlledShutdown v3 (7), which a stopping broker sends to the controller. Each has the newest version of Apache
Kafka 3.9.1, with the same fields in the same order, so that a Kafka broker of that release could read it. All are
flexible. Kafka 4 removed these requests, therefore kio has no schemas for them.
The controller's requests carry the controller epoch (D2) and the broker epoch of the receiver (D6, KIP-380).

This module must not postpone the evaluation of annotations: kio reads the field types at run time.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from .kio_imports import EntityType, ErrorCode, RequestHeader, ResponseHeader
from .topic_ids import UUID

__all__ = [
    "FULL",
    "INCREMENTAL",
    "INTERNAL",
    "ControlledShutdownRequest",
    "ControlledShutdownResponse",
    "LeaderAndIsrLiveLeader",
    "LeaderAndIsrPartitionError",
    "LeaderAndIsrPartitionState",
    "LeaderAndIsrRequest",
    "LeaderAndIsrResponse",
    "LeaderAndIsrTopicError",
    "LeaderAndIsrTopicState",
    "RemainingPartition",
    "StopReplicaPartitionError",
    "StopReplicaPartitionState",
    "StopReplicaRequest",
    "StopReplicaResponse",
    "StopReplicaTopicState",
    "UpdateMetadataBroker",
    "UpdateMetadataEndpoint",
    "UpdateMetadataPartitionState",
    "UpdateMetadataRequest",
    "UpdateMetadataResponse",
    "UpdateMetadataTopicState",
]

# kio's field metadata: the wire type, and the tag of a tagged field.
_I8 = {"kafka_type": "int8"}
_I16 = {"kafka_type": "int16"}
_I32 = {"kafka_type": "int32"}
_I64 = {"kafka_type": "int64"}
_BOOL = {"kafka_type": "bool"}
_TEXT = {"kafka_type": "string"}
_UUID = {"kafka_type": "uuid"}
_ERROR = {"kafka_type": "error_code"}

NO_BROKER_EPOCH = BrokerEpoch(-1)

FULL = 2
"""Request type: every partition of the broker is listed. LeaderAndIsr and UpdateMetadata share this value."""
INCREMENTAL = 1
"""Request type: only the changed partitions are listed."""


class _LeaderAndIsrEntity:
    __slots__ = ()
    __version__: ClassVar[Any] = 7
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[Any] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsrEntity):
    """The state that the controller decided for a partition.

    `partition_epoch` is the version of the partition's state node in the registry.
    """

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition_index: int = field(metadata=_I32)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    leader: NodeId = field(metadata=_I32)
    leader_epoch: LeaderEpoch = field(metadata=_I32)
    isr: tuple[NodeId, ...] = field(metadata=_I32, default=())
    partition_epoch: int = field(metadata=_I32)
    replicas: tuple[NodeId, ...] = field(metadata=_I32, default=())
    adding_replicas: tuple[NodeId, ...] = field(metadata=_I32, default=())
    removing_replicas: tuple[NodeId, ...] = field(metadata=_I32, default=())
    is_new: bool = field(metadata=_BOOL, default=False)
    leader_recovery_state: int = field(metadata=_I8, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_LeaderAndIsrEntity):
    """The partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: str = field(metadata=_TEXT)
    topic_id: UUID | None = field(metadata=_UUID, default=None)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsrEntity):
    """The inter-broker endpoint of a leader that the request names."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: NodeId = field(metadata=_I32)
    host_name: str = field(metadata=_TEXT)
    port: int = field(metadata=_I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsrEntity):
    """Controller to broker: which partitions the broker leads and which ones it follows (C8)."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_id: NodeId = field(metadata=_I32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)
    type: int = field(metadata=_I8, default=0)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_LeaderAndIsrEntity):
    """The result for a partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: int = field(metadata=_I32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsrEntity):
    """The results for the partitions of a topic; the topic is named by its id."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_id: UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrEntity):
    """The broker's response: an error code for the whole request, or an error code for each partition."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    topics: tuple[LeaderAndIsrTopicError, ...] = ()


class _StopReplicaEntity:
    __slots__ = ()
    __version__: ClassVar[Any] = 4
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[Any] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_StopReplicaEntity):
    """A partition to stop; leader epoch -2 marks the deletion of its topic (KIP-570)."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition_index: int = field(metadata=_I32)
    leader_epoch: LeaderEpoch = field(metadata=_I32, default=LeaderEpoch(-1))
    delete_partition: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplicaEntity):
    """The partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: str = field(metadata=_TEXT)
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaEntity):
    """Controller to broker: stop these replicas, and delete their logs where `delete_partition` is set."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_id: NodeId = field(metadata=_I32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplicaEntity):
    """The result for a partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_name: str = field(metadata=_TEXT)
    partition_index: int = field(metadata=_I32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaEntity):
    """The broker's response: an error code for the whole request, or an error code for each partition."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


class _UpdateMetadataEntity:
    __slots__ = ()
    __version__: ClassVar[Any] = 8
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[Any] = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadataEntity):
    """The metadata of a partition for clients; leader -2 marks a topic whose deletion is in progress."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition_index: int = field(metadata=_I32)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    leader: NodeId = field(metadata=_I32)
    leader_epoch: LeaderEpoch = field(metadata=_I32)
    isr: tuple[NodeId, ...] = field(metadata=_I32, default=())
    zk_version: int = field(metadata=_I32)
    replicas: tuple[NodeId, ...] = field(metadata=_I32, default=())
    offline_replicas: tuple[NodeId, ...] = field(metadata=_I32, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadataEntity):
    """The partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: str = field(metadata=_TEXT)
    topic_id: UUID | None = field(metadata=_UUID, default=None)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadataEntity):
    """The advertised address of one listener of a broker; `security_protocol` is Kafka's id of it."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    port: int = field(metadata=_I32)
    host: str = field(metadata=_TEXT)
    listener: str = field(metadata=_TEXT)
    security_protocol: int = field(metadata=_I16, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadataEntity):
    """A live broker."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    id: NodeId = field(metadata=_I32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_TEXT, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadataEntity):
    """Controller to broker: partition states, and always the complete list of live brokers."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_id: NodeId = field(metadata=_I32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    type: int = field(metadata={**_I8, "tag": 0}, default=0)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_UpdateMetadataEntity):
    """The broker's response."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)


class _ControlledShutdownEntity:
    __slots__ = ()
    __version__: ClassVar[Any] = 3
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[Any] = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_ControlledShutdownEntity):
    """Broker to controller: the broker is stopping, so its leaderships must move to other brokers (D4)."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: NodeId = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ControlledShutdownEntity):
    """A partition that the stopping broker still leads."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_name: str = field(metadata=_TEXT)
    partition_index: int = field(metadata=_I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_ControlledShutdownEntity):
    """The controller's response: the partitions whose leadership could not move."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    remaining_partitions: tuple[RemainingPartition, ...] = ()


INTERNAL: dict[tuple[int, int], tuple[type[Any], type[Any]]] = {
    (4, 7): (LeaderAndIsrRequest, LeaderAndIsrResponse),
    (5, 4): (StopReplicaRequest, StopReplicaResponse),
    (6, 8): (UpdateMetadataRequest, UpdateMetadataResponse),
    (7, 3): (ControlledShutdownRequest, ControlledShutdownResponse),
}
"""Maps (API key, version) to the classes of the request and of the response."""
