"""Which list of a response has an item for each item of which list of its request.

Owns: `MIRRORS`. A request that is refused is answered with such items (`refusals.py`): the classes are those of the
response, and `place` is the place of the errors of its items (`api_errors.py`). A list that a version of the request
lacks is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .api_errors import ENTRY, GROUP, KEY, MEMBER, PARTITION, RESOURCE, TOPIC, TRANSACTION, USER
from .api_keys import ApiKey

__all__ = ["IDENTITY", "MIRRORS", "Mirror"]

IDENTITY = "identity"
"""The place of a list that is a part of its item's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """A list of the response that has one item for each item of a list of the request."""

    request_list: str
    response_list: str
    item: str
    place: str
    key: str = ""  # the field for the item when the request lists plain values
    inner: Mirror | None = None
    error: str = "error_code"
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Identities whose name in the response is another one."""
    fill: Mapping[str, Any] = field(default_factory=dict[str, Any])
    once_by: str = ""
    """The list of the response has each item once, in the order of this field, also if several lists name it."""


def _topics(
    topic: str,
    partition: str,
    *,
    request_list: str = "partitions",
    key: str = "",
    fill: Mapping[str, Any] | None = None,
) -> Mirror:
    """The mirror of topics with partitions, the most frequent shape; the arguments are classes of the response."""
    inner = Mirror(
        request_list=request_list, response_list="partitions", item=partition, key=key, fill=fill or {}, place=PARTITION
    )
    return Mirror(request_list="topics", response_list="topics", item=topic, inner=inner, place=TOPIC)


def _shares(response_list: str, topic: str, partition: str) -> Mirror:
    """The mirror of the topics of a share group, by topic id."""
    inner = Mirror(request_list="partitions", response_list="partitions", item=partition, place=PARTITION)
    return Mirror(request_list="topics", response_list=response_list, item=topic, inner=inner, place=TOPIC)


_NO_OFFSET = {"offset": -1, "timestamp": -1, "leader_epoch": -1}
_OFFSET_FETCH_PARTITION = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}


def _added_partitions(request_list: str, response_list: str) -> Mirror:
    """The mirror of topics that are added to a transaction."""
    inner = Mirror(
        request_list="partitions",
        response_list="results_by_partition",
        item="AddPartitionsToTxnPartitionResult",
        key="partition_index",
        error="partition_error_code",
        place=PARTITION,
    )
    return Mirror(
        request_list=request_list,
        response_list=response_list,
        item="AddPartitionsToTxnTopicResult",
        inner=inner,
        place=TOPIC,
    )


MIRRORS: dict[int, tuple[Mirror, ...]] = {
    ApiKey.PRODUCE: (
        Mirror(
            request_list="topic_data",
            response_list="responses",
            item="TopicProduceResponse",
            place=TOPIC,
            inner=Mirror(
                request_list="partition_data",
                response_list="partition_responses",
                item="PartitionProduceResponse",
                place=PARTITION,
                fill={"base_offset": -1},
            ),
        ),
    ),
    ApiKey.FETCH: (
        Mirror(
            request_list="topics",
            response_list="responses",
            item="FetchableTopicResponse",
            place=TOPIC,
            inner=Mirror(
                request_list="partitions",
                response_list="partitions",
                item="PartitionData",
                place=PARTITION,
                fill={"high_watermark": -1, "records": b""},
            ),
        ),
    ),
    ApiKey.LIST_OFFSETS: (_topics("ListOffsetsTopicResponse", "ListOffsetsPartitionResponse", fill=_NO_OFFSET),),
    ApiKey.METADATA: (
        Mirror(request_list="topics", response_list="topics", item="MetadataResponseTopic", place=TOPIC),
    ),
    ApiKey.OFFSET_COMMIT: (_topics("OffsetCommitResponseTopic", "OffsetCommitResponsePartition"),),
    ApiKey.OFFSET_FETCH: (
        _topics(
            "OffsetFetchResponseTopic",
            "OffsetFetchResponsePartition",
            request_list="partition_indexes",
            key="partition_index",
            fill=_OFFSET_FETCH_PARTITION,
        ),
        Mirror(
            request_list="groups",
            response_list="groups",
            item="OffsetFetchResponseGroup",
            place=GROUP,
            inner=_topics(
                "OffsetFetchResponseTopics",
                "OffsetFetchResponsePartitions",
                request_list="partition_indexes",
                key="partition_index",
                fill=_OFFSET_FETCH_PARTITION,
            ),
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        Mirror(
            request_list="coordinator_keys",
            response_list="coordinators",
            item="Coordinator",
            key="key",
            place=KEY,
            fill={"node_id": -1, "port": -1},
        ),
    ),
    ApiKey.LEAVE_GROUP: (Mirror(request_list="members", response_list="members", item="MemberResponse", place=MEMBER),),
    ApiKey.DESCRIBE_GROUPS: (
        Mirror(request_list="groups", response_list="groups", item="DescribedGroup", key="group_id", place=GROUP),
    ),
    ApiKey.CREATE_TOPICS: (
        Mirror(
            request_list="topics",
            response_list="topics",
            item="CreatableTopicResult",
            place=TOPIC,
            fill={"configs": ()},
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        Mirror(request_list="topics", response_list="responses", item="DeletableTopicResult", place=TOPIC),
        Mirror(
            request_list="topic_names", response_list="responses", item="DeletableTopicResult", key="name", place=TOPIC
        ),
    ),
    ApiKey.DELETE_RECORDS: (
        _topics("DeleteRecordsTopicResult", "DeleteRecordsPartitionResult", fill={"low_watermark": -1}),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _topics("OffsetForLeaderTopicResult", "EpochEndOffset", fill={"leader_epoch": -1, "end_offset": -1}),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _added_partitions("v3_and_below_topics", "results_by_topic_v3_and_below"),
        Mirror(
            request_list="transactions",
            response_list="results_by_transaction",
            item="AddPartitionsToTxnResult",
            place=TRANSACTION,
            inner=_added_partitions("topics", "topic_results"),
        ),
    ),
    ApiKey.WRITE_TXN_MARKERS: (
        Mirror(
            request_list="markers",
            response_list="markers",
            item="WritableTxnMarkerResult",
            place=TRANSACTION,
            inner=_topics(
                "WritableTxnMarkerTopicResult",
                "WritableTxnMarkerPartitionResult",
                request_list="partition_indexes",
                key="partition_index",
            ),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_topics("TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition"),),
    ApiKey.CREATE_ACLS: (
        Mirror(request_list="creations", response_list="results", item="AclCreationResult", place=ENTRY),
    ),
    ApiKey.DELETE_ACLS: (
        Mirror(request_list="filters", response_list="filter_results", item="DeleteAclsFilterResult", place=ENTRY),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        Mirror(request_list="resources", response_list="results", item="DescribeConfigsResult", place=RESOURCE),
    ),
    ApiKey.ALTER_CONFIGS: (
        Mirror(
            request_list="resources", response_list="responses", item="AlterConfigsResourceResponse", place=RESOURCE
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Mirror(
            request_list="resources", response_list="responses", item="AlterConfigsResourceResponse", place=RESOURCE
        ),
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        Mirror(
            request_list="dirs topics",
            response_list="results",
            item="AlterReplicaLogDirTopicResult",
            place=TOPIC,
            renamed={"name": "topic_name"},
            inner=Mirror(
                request_list="partitions",
                response_list="partitions",
                item="AlterReplicaLogDirPartitionResult",
                key="partition_index",
                place=PARTITION,
            ),
        ),
    ),
    ApiKey.CREATE_PARTITIONS: (
        Mirror(request_list="topics", response_list="results", item="CreatePartitionsTopicResult", place=TOPIC),
    ),
    ApiKey.DELETE_GROUPS: (
        Mirror(
            request_list="groups_names",
            response_list="results",
            item="DeletableGroupResult",
            key="group_id",
            place=GROUP,
        ),
    ),
    ApiKey.DESCRIBE_QUORUM: (_topics("TopicData", "PartitionData"),),
    ApiKey.ELECT_LEADERS: (
        Mirror(
            request_list="topic_partitions",
            response_list="replica_election_results",
            item="ReplicaElectionResult",
            place=TOPIC,
            inner=Mirror(
                request_list="partitions",
                response_list="partition_result",
                item="PartitionResult",
                key="partition_id",
                place=PARTITION,
            ),
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
        Mirror(
            request_list="topics",
            response_list="responses",
            item="ReassignableTopicResponse",
            place=TOPIC,
            inner=Mirror(
                request_list="partitions",
                response_list="partitions",
                item="ReassignablePartitionResponse",
                place=PARTITION,
            ),
        ),
    ),
    ApiKey.OFFSET_DELETE: (_topics("OffsetDeleteResponseTopic", "OffsetDeleteResponsePartition"),),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        Mirror(
            request_list="entries",
            response_list="entries",
            item="EntryData",
            place=ENTRY,
            inner=Mirror(request_list="entity", response_list="entity", item="EntityData", place=IDENTITY),
        ),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (  # in Kafka these items have no name
        Mirror(request_list="users", response_list="results", item="DescribeUserScramCredentialsResult", place=USER),
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: tuple(
        Mirror(
            request_list=rows,
            response_list="results",
            item="AlterUserScramCredentialsResult",
            place=USER,
            renamed={"name": "user"},
            once_by="user",
        )
        for rows in ("deletions", "upsertions")
    ),
    ApiKey.SHARE_FETCH: (_shares("responses", "ShareFetchableTopicResponse", "PartitionData"),),
    ApiKey.SHARE_ACKNOWLEDGE: (_shares("responses", "ShareAcknowledgeTopicResponse", "PartitionData"),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_shares("results", "InitializeStateResult", "PartitionResult"),),
    ApiKey.READ_SHARE_GROUP_STATE: (_shares("results", "ReadStateResult", "PartitionResult"),),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_shares("results", "WriteStateResult", "PartitionResult"),),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_shares("results", "DeleteStateResult", "PartitionResult"),),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_shares("results", "ReadStateSummaryResult", "PartitionResult"),),
    ApiKey.DESCRIBE_PRODUCERS: (
        _topics("TopicResponse", "PartitionResponse", request_list="partition_indexes", key="partition_index"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Mirror(
            request_list="transactional_ids",
            response_list="transaction_states",
            item="TransactionState",
            key="transactional_id",
            place=TRANSACTION,
        ),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        Mirror(request_list="topics", response_list="topics", item="DescribeTopicPartitionsResponseTopic", place=TOPIC),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        Mirror(request_list="group_ids", response_list="groups", item="DescribedGroup", key="group_id", place=GROUP),
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: (
        Mirror(request_list="group_ids", response_list="groups", item="DescribedGroup", key="group_id", place=GROUP),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Mirror(
            request_list="groups",
            response_list="groups",
            item="DescribeShareGroupOffsetsResponseGroup",
            place=GROUP,
        ),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
        Mirror(
            request_list="topics",
            response_list="responses",
            item="AlterShareGroupOffsetsResponseTopic",
            inner=Mirror(
                request_list="partitions",
                response_list="partitions",
                item="AlterShareGroupOffsetsResponsePartition",
                place=PARTITION,
            ),
            fill={"topic_id": None},
            place=TOPIC,
        ),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
        Mirror(
            request_list="topics",
            response_list="responses",
            item="DeleteShareGroupOffsetsResponseTopic",
            fill={"topic_id": None},
            place=TOPIC,
        ),
    ),
    ApiKey.STREAMS_GROUP_DESCRIBE: (
        Mirror(request_list="group_ids", response_list="groups", item="DescribedGroup", key="group_id", place=GROUP),
    ),
}
