"""The error response of each API: one error code for every item of a request.

Owns: `refusal`. Some APIs have one error at the top of the response, others an error for each topic, partition, group
or resource of the request. The table `_MIRRORS` says which list of the response mirrors which list of the request.
Identities (names, ids, indexes) are copied from the request's item; every other field has its neutral value or,
as in Kafka's `getErrorResponse`, -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ErrorCode
from . import messages
from .api_keys import ApiKey

__all__ = ["refusal"]

# The fields that name an item, in requests and in responses.
_IDENTITIES = (
    "name",
    "topic",
    "topic_id",
    "index",
    "partition",
    "partition_index",
    "group_id",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mirror:
    """A list of the response that has one item for each item of a list of the request."""

    request_list: str
    response_list: str
    item: str
    key: str = ""  # the field for the item when the request lists plain values
    inner: _Mirror | None = None
    last_version: int | None = None
    """Later versions have the error above the list, which is then empty."""
    fill: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _topics(
    topic: str,
    partition: str,
    *,
    request_list: str = "partitions",
    key: str = "",
    last_version: int | None = None,
    fill: Mapping[str, Any] | None = None,
) -> _Mirror:
    """The mirror of topics with partitions, the most frequent shape; the arguments are classes of the response."""
    inner = _Mirror(
        request_list=request_list,
        response_list="partitions",
        item=partition,
        key=key,
        fill=fill or {},
    )
    return _Mirror(
        request_list="topics",
        response_list="topics",
        item=topic,
        inner=inner,
        last_version=last_version,
    )


_OFFSET_FETCH_PARTITION = {"committed_offset": -1, "metadata": ""}

_MIRRORS: dict[int, tuple[_Mirror, ...]] = {
    ApiKey.PRODUCE: (
        _Mirror(
            request_list="topic_data",
            response_list="responses",
            item="TopicProduceResponse",
            inner=_Mirror(
                request_list="partition_data",
                response_list="partition_responses",
                item="PartitionProduceResponse",
                fill={"base_offset": -1},
            ),
        ),
    ),
    ApiKey.FETCH: (
        _Mirror(
            request_list="topics",
            response_list="responses",
            item="FetchableTopicResponse",
            inner=_Mirror(
                request_list="partitions",
                response_list="partitions",
                item="PartitionData",
                fill={"high_watermark": -1, "records": b""},
            ),
        ),
    ),
    ApiKey.LIST_OFFSETS: (_topics("ListOffsetsTopicResponse", "ListOffsetsPartitionResponse"),),
    ApiKey.METADATA: (
        _Mirror(request_list="topics", response_list="topics", item="MetadataResponseTopic"),
    ),
    ApiKey.OFFSET_COMMIT: (_topics("OffsetCommitResponseTopic", "OffsetCommitResponsePartition"),),
    ApiKey.OFFSET_FETCH: (
        _topics(
            "OffsetFetchResponseTopic",
            "OffsetFetchResponsePartition",
            request_list="partition_indexes",
            key="partition_index",
            last_version=1,
            fill=_OFFSET_FETCH_PARTITION,
        ),
        _Mirror(
            request_list="groups",
            response_list="groups",
            item="OffsetFetchResponseGroup",
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        _Mirror(
            request_list="coordinator_keys",
            response_list="coordinators",
            item="Coordinator",
            key="key",
            fill={"node_id": -1, "port": -1},
        ),
    ),
    ApiKey.DESCRIBE_GROUPS: (
        _Mirror(
            request_list="groups", response_list="groups", item="DescribedGroup", key="group_id"
        ),
    ),
    ApiKey.CREATE_TOPICS: (
        _Mirror(request_list="topics", response_list="topics", item="CreatableTopicResult"),
    ),
    ApiKey.DELETE_TOPICS: (
        _Mirror(request_list="topics", response_list="responses", item="DeletableTopicResult"),
        _Mirror(
            request_list="topic_names",
            response_list="responses",
            item="DeletableTopicResult",
            key="name",
        ),
    ),
    ApiKey.DELETE_RECORDS: (
        _topics(
            "DeleteRecordsTopicResult", "DeleteRecordsPartitionResult", fill={"low_watermark": -1}
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_topics("OffsetForLeaderTopicResult", "EpochEndOffset"),),
    ApiKey.WRITE_TXN_MARKERS: (
        _Mirror(
            request_list="markers",
            response_list="markers",
            item="WritableTxnMarkerResult",
            inner=_topics(
                "WritableTxnMarkerTopicResult",
                "WritableTxnMarkerPartitionResult",
                request_list="partition_indexes",
                key="partition_index",
            ),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        _topics("TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition"),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        _Mirror(request_list="resources", response_list="results", item="DescribeConfigsResult"),
    ),
    ApiKey.ALTER_CONFIGS: (
        _Mirror(
            request_list="resources", response_list="responses", item="AlterConfigsResourceResponse"
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _Mirror(
            request_list="resources", response_list="responses", item="AlterConfigsResourceResponse"
        ),
    ),
    ApiKey.CREATE_PARTITIONS: (
        _Mirror(request_list="topics", response_list="results", item="CreatePartitionsTopicResult"),
    ),
    ApiKey.DELETE_GROUPS: (
        _Mirror(
            request_list="groups_names",
            response_list="results",
            item="DeletableGroupResult",
            key="group_id",
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        _topics(
            "TopicResponse",
            "PartitionResponse",
            request_list="partition_indexes",
            key="partition_index",
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _Mirror(
            request_list="transactional_ids",
            response_list="transaction_states",
            item="TransactionState",
            key="transactional_id",
        ),
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        _Mirror(
            request_list="topics",
            response_list="topics",
            item="DescribeTopicPartitionsResponseTopic",
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _Mirror(
            request_list="group_ids", response_list="groups", item="DescribedGroup", key="group_id"
        ),
    ),
}

_TOP: dict[int, Mapping[str, Any]] = {
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
}
"""Fields at the top of a response whose value for "none" is not zero."""


def refusal(api_key: int, version: int, request: Any, code: ErrorCode, message: str = "") -> Any:
    """The response entity with `code` for every item of the entity `request`."""
    s = messages.schema(api_key, version, "response")
    text = message or None
    values: dict[str, Any] = {"error_code": code, "error_message": text, **_TOP.get(api_key, {})}
    for mirror in _MIRRORS.get(api_key, ()):
        if mirror.last_version is None or version <= mirror.last_version:
            _add_mirrored_list(s, mirror, request, code, text, values)
    return s.root(**values)


def _add_mirrored_list(
    s: messages.Schema,
    mirror: _Mirror,
    request: Any,
    code: ErrorCode,
    text: str | None,
    into: dict[str, Any],
) -> None:
    """Add the response's list to `into`, when this version of the request has the list that it mirrors."""
    if not hasattr(request, mirror.request_list):
        return
    make = getattr(s, mirror.item)
    items: list[Any] = []
    for item in getattr(request, mirror.request_list) or ():
        values: dict[str, Any] = {"error_code": code, "error_message": text, **mirror.fill}
        if mirror.key:
            values[mirror.key] = item
        for name in _IDENTITIES:
            if hasattr(item, name):
                values[name] = getattr(item, name)
        if "partition" in values:
            values["partition_index"] = values["partition"]
        if mirror.inner is not None:
            _add_mirrored_list(s, mirror.inner, item, code, text, values)
        items.append(make(**values))
    into[mirror.response_list] = tuple(items)
