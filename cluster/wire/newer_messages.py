"""Versions of requests that Apache Kafka 4.4 has and kio has no schema for, as kio entities.

Owns: ApiVersions v5 (KIP-1242), TxnOffsetCommit v6 (KIP-1319), DescribeLogDirs v5 (KIP-1066), DeleteGroups v3,
StreamsGroupHeartbeat and StreamsGroupDescribe v1, and StreamsGroupTopologyDescriptionUpdate v0 (KIP-1331, KIP-1357).
The fields have the names and the order of Kafka's message files; all are flexible. What a message has in common with
its version 0 are kio's classes of that version.

`messages.py` has the table of them, and imports this module at the first use of one: that takes 25 ms.
This module must not postpone the evaluation of annotations: kio reads the field types at run time.
"""

# ruff: noqa: E402 - kio's base types come first

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from .. import kio_types

kio_types.load()

from kio.schema.streams_group_describe.v0 import request as streams_describe_request_v0
from kio.schema.streams_group_describe.v0 import response as streams_describe_v0
from kio.schema.streams_group_heartbeat.v0 import request as streams_heartbeat_request_v0
from kio.schema.streams_group_heartbeat.v0 import response as streams_heartbeat_v0

from .kio_imports import EntityType, ErrorCode, RequestHeader, ResponseHeader
from .topic_ids import UUID

# kio's field metadata: the wire type, and the tag of a tagged field.
_I8 = {"kafka_type": "int8"}
_I16 = {"kafka_type": "int16"}
_I32 = {"kafka_type": "int32"}
_I64 = {"kafka_type": "int64"}
_BOOL = {"kafka_type": "bool"}
_TEXT = {"kafka_type": "string"}
_UUID = {"kafka_type": "uuid"}
_ERROR = {"kafka_type": "error_code"}
_TIME = {"kafka_type": "timedelta_i32"}


class _Entity:
    __slots__ = ()
    __flexible__: ClassVar[bool] = True


class _ApiVersions(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 18
    __version__: ClassVar[Any] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(_ApiVersions):
    """The client's software, and whom it means to reach: the cluster, and the node in it."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    client_software_name: str = field(metadata=_TEXT)
    client_software_version: str = field(metadata=_TEXT)
    cluster_id: str | None = field(metadata=_TEXT, default=None)
    node_id: int = field(metadata=_I32, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion(_ApiVersions):
    """The versions of one API."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    api_key: int = field(metadata=_I16)
    min_version: int = field(metadata=_I16)
    max_version: int = field(metadata=_I16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedFeatureKey(_ApiVersions):
    """The levels of a feature that the broker supports."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata=_TEXT)
    min_version: int = field(metadata=_I16)
    max_version: int = field(metadata=_I16)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatureKey(_ApiVersions):
    """The level of a feature in the cluster."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata=_TEXT)
    max_version_level: int = field(metadata=_I16)
    min_version_level: int = field(metadata=_I16)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(_ApiVersions):
    """What the listener serves."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    api_keys: tuple[ApiVersion, ...]
    throttle_time: timedelta = field(metadata=_TIME)
    supported_features: tuple[SupportedFeatureKey, ...] = field(metadata={"tag": 0}, default=())
    finalized_features_epoch: int = field(metadata={**_I64, "tag": 1}, default=-1)
    finalized_features: tuple[FinalizedFeatureKey, ...] = field(metadata={"tag": 2}, default=())
    zk_migration_ready: bool = field(metadata={**_BOOL, "tag": 3}, default=False)


class _TxnOffsetCommit(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 28
    __version__: ClassVar[Any] = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestPartition(_TxnOffsetCommit):
    """The offset of a partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    partition_index: int = field(metadata=_I32)
    committed_offset: int = field(metadata=_I64)
    committed_leader_epoch: int = field(metadata=_I32, default=-1)
    committed_metadata: str | None = field(metadata=_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic(_TxnOffsetCommit):
    """The offsets of a topic, which its id names."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic_id: UUID | None = field(metadata=_UUID, default=None)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest(_TxnOffsetCommit):
    """Offsets of a group that become valid with the transaction."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    transactional_id: str = field(metadata=_TEXT)
    group_id: str = field(metadata=_TEXT)
    producer_id: int = field(metadata=_I64)
    producer_epoch: int = field(metadata=_I16)
    generation_id_or_member_epoch: int = field(metadata=_I32, default=-1)
    member_id: str = field(metadata=_TEXT, default="")
    group_instance_id: str | None = field(metadata=_TEXT, default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponsePartition(_TxnOffsetCommit):
    """The result of a partition."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: int = field(metadata=_I32)
    error_code: ErrorCode = field(metadata=_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic(_TxnOffsetCommit):
    """The results of a topic, which its id names."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    topic_id: UUID | None = field(metadata=_UUID, default=None)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse(_TxnOffsetCommit):
    """The results of all topics."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    topics: tuple[TxnOffsetCommitResponseTopic, ...]


class _DescribeLogDirs(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 35
    __version__: ClassVar[Any] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribableLogDirTopic(_DescribeLogDirs):
    """The partitions of a topic."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topic: str = field(metadata=_TEXT)
    partitions: tuple[int, ...] = field(metadata=_I32, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsRequest(_DescribeLogDirs):
    """Which partitions to describe; None: all."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    topics: tuple[DescribableLogDirTopic, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsPartition(_DescribeLogDirs):
    """The log of a replica."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    partition_index: int = field(metadata=_I32)
    partition_size: int = field(metadata=_I64)
    offset_lag: int = field(metadata=_I64)
    is_future_key: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsTopic(_DescribeLogDirs):
    """The replicas of a topic in a data folder."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    name: str = field(metadata=_TEXT)
    partitions: tuple[DescribeLogDirsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResult(_DescribeLogDirs):
    """A data folder."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata=_ERROR)
    log_dir: str = field(metadata=_TEXT)
    topics: tuple[DescribeLogDirsTopic, ...]
    total_bytes: int = field(metadata=_I64, default=-1)
    usable_bytes: int = field(metadata=_I64, default=-1)
    is_cordoned: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeLogDirsResponse(_DescribeLogDirs):
    """The data folders of a broker."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    error_code: ErrorCode = field(metadata=_ERROR)
    results: tuple[DescribeLogDirsResult, ...]


class _DeleteGroups(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 42
    __version__: ClassVar[Any] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(_DeleteGroups):
    """The groups to delete."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    groups_names: tuple[str, ...] = field(metadata=_TEXT, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult(_DeleteGroups):
    """The result of a group."""

    __type__: ClassVar = EntityType.nested
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    group_id: str = field(metadata=_TEXT)
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_TEXT, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(_DeleteGroups):
    """The results of all groups."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    results: tuple[DeletableGroupResult, ...]


class _StreamsHeartbeat(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 88
    __version__: ClassVar[Any] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatRequest(streams_heartbeat_request_v0.StreamsGroupHeartbeatRequest):
    """As version 0; its sender knows the later response."""

    __version__: ClassVar[Any] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupHeartbeatResponse(_StreamsHeartbeat):
    """What a member does next, and whether it must send the description of its topology."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_TEXT, default=None)
    member_id: str = field(metadata=_TEXT)
    member_epoch: int = field(metadata=_I32)
    heartbeat_interval: timedelta = field(metadata=_TIME)
    task_offset_interval: timedelta = field(metadata=_TIME)
    acceptable_recovery_lag: int = field(metadata=_I64, default=-1)
    status: tuple[streams_heartbeat_v0.Status, ...] | None
    active_tasks: tuple[streams_heartbeat_v0.TaskIds, ...] | None
    standby_tasks: tuple[streams_heartbeat_v0.TaskIds, ...] | None
    warmup_tasks: tuple[streams_heartbeat_v0.TaskIds, ...] | None
    topology_description_required: bool = field(metadata=_BOOL, default=False)
    endpoint_information_epoch: int = field(metadata=_I32)
    partitions_by_user_endpoint: tuple[streams_heartbeat_v0.EndpointToPartitions, ...] | None


class _Description(_Entity):
    """Of StreamsGroupTopologyDescriptionUpdate v0, and of StreamsGroupDescribe v1, which has the same fields."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __api_key__: ClassVar[Any] = 93
    __version__: ClassVar[Any] = 0
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionNode(_Description):
    """A source, processor or sink."""

    name: str = field(metadata=_TEXT)
    node_type: int = field(metadata=_I8)
    source_topics: tuple[str, ...] = field(metadata=_TEXT, default=())
    sink_topic: str | None = field(metadata=_TEXT, default=None)
    stores: tuple[str, ...] = field(metadata=_TEXT, default=())
    successors: tuple[str, ...] = field(metadata=_TEXT, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionSubtopology(_Description):
    """The nodes of a subtopology."""

    subtopology_id: str = field(metadata=_TEXT)
    nodes: tuple[TopologyDescriptionNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescriptionGlobalStore(_Description):
    """A global store, and what writes it."""

    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDescription(_Description):
    """What an application does, as its topology names it."""

    subtopologies: tuple[TopologyDescriptionSubtopology, ...]
    global_stores: tuple[TopologyDescriptionGlobalStore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeRequest(streams_describe_request_v0.StreamsGroupDescribeRequest):
    """The groups, and whether their descriptions of topologies are wanted."""

    __version__: ClassVar[Any] = 1
    include_topology_description: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup(streams_describe_v0.DescribedGroup):
    """A group, with the status of its description and its assignor."""

    __version__: ClassVar[Any] = 1
    topology_description: TopologyDescription | None = field(default=None)
    topology_description_status: int = field(metadata=_I8, default=0)
    assignor_name: str | None = field(metadata=_TEXT, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescribeResponse(_Entity):
    """The groups."""

    __api_key__: ClassVar[Any] = 89
    __version__: ClassVar[Any] = 1
    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    groups: tuple[DescribedGroup, ...]


class _DescriptionUpdate(_Entity):
    __slots__ = ()
    __api_key__: ClassVar[Any] = 93
    __version__: ClassVar[Any] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupTopologyDescriptionUpdateRequest(_DescriptionUpdate):
    """A member sends the description of its topology."""

    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group_id: str = field(metadata=_TEXT)
    member_id: str = field(metadata=_TEXT)
    topology_epoch: int = field(metadata=_I32)
    topology_description: TopologyDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupTopologyDescriptionUpdateResponse(_DescriptionUpdate):
    """Whether a plugin has stored it."""

    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    throttle_time: timedelta = field(metadata=_TIME)
    error_code: ErrorCode = field(metadata=_ERROR)
    error_message: str | None = field(metadata=_TEXT, default=None)
