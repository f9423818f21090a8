"""The controller's requests to brokers, and a leaving broker's to the controller, as kio entities.

Owns: LeaderAndIsr v7 (key 4), StopReplica v4 (5), UpdateMetadata v8 (6) and ControlledShutdown v3 (7),
each in the newest version of Apache Kafka 3.9.1, field for field and in its order, so that a Kafka broker
of that release could read them. All are flexible. Kafka 4 removed them, therefore kio has none.
Each carries the controller's epoch (D2) and the epoch of the receiving broker's registration (D6, KIP-380).

No postponed annotations here: kio reads the field types as they are at run time.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType

from ..ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
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
"""LeaderAndIsr type: every partition of the broker is listed. UpdateMetadata has the same words."""
INCREMENTAL = 1
"""LeaderAndIsr type: only what changed is listed."""


class _LeaderAndIsrEntity:
    __slots__ = ()
    __version__: ClassVar[Any] = 7
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[Any] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsrEntity):
    """One partition as the controller decided it; `partition_epoch` is the state node's version."""

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
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: str = field(metadata=_TEXT)
    topic_id: UUID | None = field(metadata=_UUID, default=None)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsrEntity):
    """Where a leader named in the request listens for brokers."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: NodeId = field(metadata=_I32)
    host_name: str = field(metadata=_TEXT)
    port: int = field(metadata=_I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_LeaderAndIsrEntity):
    """Controller to broker: lead these, follow those (C8)."""

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
    """What became of one partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: int = field(metadata=_I32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsrEntity):
    """What became of one topic's partitions; topics go by id."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_id: UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_LeaderAndIsrEntity):
    """The broker's answer: an error for the whole request, or one a partition."""

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
    """One partition to stop; leader epoch -2 marks a topic's deletion (KIP-570)."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition_index: int = field(metadata=_I32)
    leader_epoch: LeaderEpoch = field(metadata=_I32, default=LeaderEpoch(-1))
    delete_partition: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplicaEntity):
    """The partitions of one topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_name: str = field(metadata=_TEXT)
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_StopReplicaEntity):
    """Controller to broker: no longer keep these replicas, and maybe delete their logs."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_id: NodeId = field(metadata=_I32)
    is_kraft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: ControllerEpoch = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplicaEntity):
    """What became of one partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_name: str = field(metadata=_TEXT)
    partition_index: int = field(metadata=_I32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_StopReplicaEntity):
    """The broker's answer: an error for the whole request, or one a partition."""

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
    """One partition as clients should see it; leader -2 says that its topic is being deleted."""

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
    """The partitions of one topic."""

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
    """One live broker."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    id: NodeId = field(metadata=_I32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_TEXT, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_UpdateMetadataEntity):
    """Controller to broker: what the cluster looks like; the list of live brokers is always whole."""

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
    """The broker's answer."""

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
    """Broker to controller: I am leaving, move my leaders (D4)."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    broker_id: NodeId = field(metadata=_I32)
    broker_epoch: BrokerEpoch = field(metadata=_I64, default=NO_BROKER_EPOCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ControlledShutdownEntity):
    """A partition that the leaving broker still leads."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_name: str = field(metadata=_TEXT)
    partition_index: int = field(metadata=_I32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_ControlledShutdownEntity):
    """The controller's answer: what could not be moved."""

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
"""(API key, version) to the classes of its request and response."""
