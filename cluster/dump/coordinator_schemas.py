"""Schemas of the records that coordinators write, by topic and type.

Topics: `__consumer_offsets`, `__transaction_state`, `__share_group_state`.

Owns: only the schemas, as in Kafka 4.2: classic groups (types 0 to 2), consumer groups (3 to 8, 16),
share groups (10 to 15), streams groups (17 to 23), transactions. A key begins with its type and
a value with its version (both int16).
Source: the message files of Kafka's group, transaction and share coordinators.
"""

from __future__ import annotations

from .java_text import Json
from .schema import Field, Kind, Many, Struct, field

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def _strings(*names: str) -> tuple[Field, ...]:
    return tuple(field(name, "string") for name in names)


def _nullable(name: str, kind: Kind = "string") -> Field:
    return field(name, kind, nullable=True)


def _tagged(name: str, kind: Kind, tag: int, default: Json, *, since: int = 0) -> Field:
    # Kafka's generated code treats arrays and structs as null when empty, whatever the message files declare.
    nullable = not isinstance(kind, str)
    return field(name, kind, tag=tag, default=default, since=since, nullable=nullable)


def _value(name: str, *fields: Field) -> Struct:
    return Struct(name, fields, flexible=0)


_EPOCH = field("epoch", "int32")
_GROUP = Struct("Group", _strings("groupId"))
_MEMBER = Struct("Member", _strings("groupId", "memberId"))
_OFFSET_KEY = Struct("OffsetCommitKey", (*_strings("group", "topic"), field("partition", "int32")))
_PARTITIONS = field("partitions", Many("int32"))
_TOPIC_PARTITIONS = Struct("TopicPartitions", (field("topicId", "uuid"), _PARTITIONS))
_TOPIC_PARTITIONS_SINCE = Struct(
    "TopicPartitions", (field("topicId", "uuid"), _PARTITIONS, _tagged("assignmentEpochs", Many("int32"), 0, []))
)
_MEMBER_EPOCHS = (field("memberEpoch", "int32"), field("previousMemberEpoch", "int32"), field("state", "int8"))
_TARGET_EPOCH = (field("assignmentEpoch", "int32"), _tagged("assignmentTimestamp", "int64", 0, 0))
_ASSIGNED = field("assignedPartitions", Many(_TOPIC_PARTITIONS))
_TARGET = field("topicPartitions", Many(_TOPIC_PARTITIONS))
_SUBSCRIBED = field("subscribedTopicNames", Many("string"))
_CLIENT = _strings("clientId", "clientHost")

KEYS: dict[int, Struct] = {
    0: _OFFSET_KEY,
    1: _OFFSET_KEY,
    2: Struct("GroupMetadataKey", _strings("group")),
    16: Struct("ConsumerGroupRegularExpressionKey", _strings("groupId", "regularExpression")),
    **dict.fromkeys((3, 4, 6, 11, 12, 15, 17, 20, 23), _GROUP),
    **dict.fromkeys((5, 7, 8, 10, 13, 14, 19, 21, 22), _MEMBER),
}
"""Type of a record of `__consumer_offsets` -> the schema of its key."""

_CLASSIC_MEMBER = Struct(
    "MemberMetadata",
    (
        field("memberId", "string"),
        field("groupInstanceId", "string", since=3, nullable=True),
        *_CLIENT,
        field("rebalanceTimeout", "int32", since=1),
        field("sessionTimeout", "int32"),
        field("subscription", "bytes"),
        field("assignment", "bytes"),
    ),
)
_CLASSIC: dict[int, Struct] = {
    0: Struct(
        "LegacyOffsetCommitValue",
        (field("offset", "int64"), field("metadata", "string"), field("commitTimestamp", "int64")),
    ),
    1: Struct(
        "OffsetCommitValue",
        (
            field("offset", "int64"),
            field("leaderEpoch", "int32", since=3),
            field("metadata", "string"),
            field("commitTimestamp", "int64"),
            field("expireTimestamp", "int64", since=1, until=1),
            field("topicId", "uuid", since=4, tag=0, default=_NO_ID),
        ),
        newest=4,
        flexible=4,
    ),
    2: Struct(
        "GroupMetadataValue",
        (
            field("protocolType", "string"),
            field("generation", "int32"),
            _nullable("protocol"),
            _nullable("leader"),
            field("currentStateTimestamp", "int64", since=2),
            field("members", Many(_CLASSIC_MEMBER)),
        ),
        newest=4,
        flexible=4,
    ),
}

_CLASSIC_PROTOCOL = Struct("ClassicProtocol", (*_strings("name"), field("metadata", "bytes")))
_CLASSIC_METADATA = Struct(
    "ClassicMemberMetadata", (field("sessionTimeoutMs", "int32"), field("supportedProtocols", Many(_CLASSIC_PROTOCOL)))
)
_RACKS = Struct("PartitionMetadata", (field("partition", "int32"), field("racks", Many("string"))))
_TOPIC_METADATA = Struct(
    "TopicMetadata",
    (
        field("topicId", "uuid"),
        field("topicName", "string"),
        field("numPartitions", "int32"),
        field("partitionMetadata", Many(_RACKS)),
    ),
)
_CONSUMER: dict[int, Struct] = {
    3: _value("ConsumerGroupMetadataValue", _EPOCH, _tagged("metadataHash", "int64", 0, 0)),
    4: _value("ConsumerGroupPartitionMetadataValue", field("topics", Many(_TOPIC_METADATA))),
    5: _value(
        "ConsumerGroupMemberMetadataValue",
        _nullable("instanceId"),
        _nullable("rackId"),
        *_CLIENT,
        _SUBSCRIBED,
        _nullable("subscribedTopicRegex"),
        field("rebalanceTimeoutMs", "int32"),
        _nullable("serverAssignor"),
        _tagged("classicMemberMetadata", _CLASSIC_METADATA, 0, {"sessionTimeoutMs": 0, "supportedProtocols": []}),
    ),
    6: _value("ConsumerGroupTargetAssignmentMetadataValue", *_TARGET_EPOCH),
    7: _value("ConsumerGroupTargetAssignmentMemberValue", _TARGET),
    8: _value(
        "ConsumerGroupCurrentMemberAssignmentValue",
        *_MEMBER_EPOCHS,
        field("assignedPartitions", Many(_TOPIC_PARTITIONS_SINCE)),
        field("partitionsPendingRevocation", Many(_TOPIC_PARTITIONS_SINCE)),
    ),
    16: _value(
        "ConsumerGroupRegularExpressionValue",
        field("topics", Many("string")),
        field("version", "int64"),
        field("timestamp", "int64"),
    ),
}

_TOPIC_INFO = (field("topicId", "uuid"), field("topicName", "string"))
_SHARED_TOPIC = Struct("TopicPartitionsInfo", (*_TOPIC_INFO, _PARTITIONS))
_SHARE: dict[int, Struct] = {
    10: _value("ShareGroupMemberMetadataValue", _nullable("rackId"), *_CLIENT, _SUBSCRIBED),
    11: _value("ShareGroupMetadataValue", _EPOCH, field("metadataHash", "int64")),
    12: _value("ShareGroupTargetAssignmentMetadataValue", *_TARGET_EPOCH),
    13: _value("ShareGroupTargetAssignmentMemberValue", _TARGET),
    14: _value("ShareGroupCurrentMemberAssignmentValue", *_MEMBER_EPOCHS, _ASSIGNED),
    15: _value(
        "ShareGroupStatePartitionMetadataValue",
        field("initializingTopics", Many(_SHARED_TOPIC)),
        field("initializedTopics", Many(_SHARED_TOPIC)),
        field("deletingTopics", Many(Struct("TopicInfo", _TOPIC_INFO))),
    ),
}

_TEXT_PAIR = Struct("KeyValue", _strings("key", "value"))
_ASSIGNED_TASKS = Struct(
    "TaskIds", (*_strings("subtopologyId"), _PARTITIONS, _tagged("assignmentEpochs", Many("int32"), 0, []))
)
_TASKS = Struct("TaskIds", (*_strings("subtopologyId"), _PARTITIONS))
_INTERNAL_TOPIC = Struct(
    "TopicInfo",
    (
        *_strings("name"),
        field("partitions", "int32"),
        field("replicationFactor", "int16"),
        field("topicConfigs", Many(_TEXT_PAIR)),
    ),
)
_COPARTITIONED = Struct(
    "CopartitionGroup",
    tuple(field(name, Many("int16")) for name in ("sourceTopics", "sourceTopicRegex", "repartitionSourceTopics")),
)
_SUBTOPOLOGY = Struct(
    "Subtopology",
    (
        *_strings("subtopologyId"),
        field("sourceTopics", Many("string")),
        field("sourceTopicRegex", Many("string")),
        field("stateChangelogTopics", Many(_INTERNAL_TOPIC)),
        field("repartitionSinkTopics", Many("string")),
        field("repartitionSourceTopics", Many(_INTERNAL_TOPIC)),
        field("copartitionGroups", Many(_COPARTITIONED)),
    ),
)
_STREAMS: dict[int, Struct] = {
    17: _value(
        "StreamsGroupMetadataValue",
        _EPOCH,
        field("metadataHash", "int64"),
        _tagged("validatedTopologyEpoch", "int32", 0, -1),
        _tagged("lastAssignmentConfigs", Many(_TEXT_PAIR), 1, []),
    ),
    19: _value(
        "StreamsGroupMemberMetadataValue",
        _nullable("instanceId"),
        _nullable("rackId"),
        *_CLIENT,
        field("rebalanceTimeoutMs", "int32"),
        field("topologyEpoch", "int32"),
        field("processId", "string"),
        _nullable("userEndpoint", Struct("Endpoint", (*_strings("host"), field("port", "uint16")))),
        field("clientTags", Many(_TEXT_PAIR)),
    ),
    20: _value("StreamsGroupTargetAssignmentMetadataValue", *_TARGET_EPOCH),
    21: _value(
        "StreamsGroupTargetAssignmentMemberValue",
        *(field(f"{kind}Tasks", Many(_TASKS)) for kind in ("active", "standby", "warmup")),
    ),
    22: _value(
        "StreamsGroupCurrentMemberAssignmentValue",
        *_MEMBER_EPOCHS,
        *(
            field(f"{kind}Tasks{state}", Many(_ASSIGNED_TASKS))
            for state in ("", "PendingRevocation")
            for kind in ("active", "standby", "warmup")
        ),
    ),
    23: _value("StreamsGroupTopologyValue", _EPOCH, field("subtopologies", Many(_SUBTOPOLOGY))),
}

VALUES: dict[int, Struct] = {**_CLASSIC, **_CONSUMER, **_SHARE, **_STREAMS}
"""Type of a record of `__consumer_offsets` -> the schema of its value."""

_OWNED = Struct("TopicPartition", (field("topic", "string"), _PARTITIONS))

SUBSCRIPTION = Struct(
    "ConsumerProtocolSubscription",
    (
        field("topics", Many("string")),
        _nullable("userData", "bytes"),
        field("ownedPartitions", Many(_OWNED), since=1),
        field("generationId", "int32", since=2),
        field("rackId", "string", since=3, nullable=True),
    ),
    newest=3,
)
ASSIGNMENT = Struct(
    "ConsumerProtocolAssignment", (field("assignedPartitions", Many(_OWNED)), _nullable("userData", "bytes")), newest=3
)

TRANSACTION_KEYS = {0: Struct("TransactionLogKey", _strings("transactionalId"))}
_TRANSACTION_PARTITIONS = Struct("PartitionsSchema", (*_strings("topic"), field("partitionIds", Many("int32"))))
TRANSACTION_VALUES = {
    0: Struct(
        "TransactionLogValue",
        (
            field("producerId", "int64"),
            _tagged("previousProducerId", "int64", 0, -1, since=1),
            _tagged("nextProducerId", "int64", 1, -1, since=1),
            field("producerEpoch", "int16"),
            _tagged("nextProducerEpoch", "int16", 3, -1, since=1),
            field("transactionTimeoutMs", "int32"),
            field("transactionStatus", "int8"),
            _nullable("transactionPartitions", Many(_TRANSACTION_PARTITIONS)),
            field("transactionLastUpdateTimestampMs", "int64"),
            field("transactionStartTimestampMs", "int64"),
            _tagged("clientTransactionVersion", "int16", 2, 0, since=1),
        ),
        newest=1,
        flexible=1,
    )
}
"""The only type of a record of `__transaction_state` -> the schema of its value."""

_SHARE_PARTITION_KEY = Struct(
    "ShareSnapshotKey", (*_strings("groupId"), field("topicId", "uuid"), field("partition", "int32"))
)
SHARE_STATE_KEYS: dict[int, Struct] = {0: _SHARE_PARTITION_KEY, 1: _SHARE_PARTITION_KEY}
_STATE_BATCH = Struct(
    "StateBatch",
    (
        field("firstOffset", "int64"),
        field("lastOffset", "int64"),
        field("deliveryState", "int8"),
        field("deliveryCount", "int16"),
    ),
)
_STORED_STATE = (
    field("leaderEpoch", "int32"),
    field("startOffset", "int64"),
    _tagged("deliveryCompleteCount", "int32", 0, -1),
)
_STATE_BATCHES = field("stateBatches", Many(_STATE_BATCH))
SHARE_STATE_VALUES: dict[int, Struct] = {
    0: _value(
        "ShareSnapshotValue",
        field("snapshotEpoch", "int32"),
        field("stateEpoch", "int32"),
        *_STORED_STATE,
        field("createTimestamp", "int64"),
        field("writeTimestamp", "int64"),
        _STATE_BATCHES,
    ),
    1: _value("ShareUpdateValue", field("snapshotEpoch", "int32"), *_STORED_STATE, _STATE_BATCHES),
}
"""Type of a record of `__share_group_state` -> the schema of its value."""
