"""The error response of each API: one code for everything that a request asked about.

Owns: `refusal`. Some APIs have an error at the top, others one for each topic, partition, group or
resource asked; the table `_MIRRORS` says which list of the response mirrors which list of the request.
Identities (names, ids, indexes) are copied from the asked item, everything else is neutral or, as in
Kafka's `getErrorResponse`, -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ErrorCode
from . import messages
from .api_keys import ApiKey

__all__ = ["refusal"]

# What names an item, in requests and responses alike.
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

    asked: str
    answered: str
    item: str
    key: str = ""  # where an item's identity goes when the request lists plain values
    inner: _Mirror | None = None
    fill: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _topics(
    topic: str,
    partition: str,
    *,
    asked: str = "partitions",
    key: str = "",
    fill: Mapping[str, Any] | None = None,
) -> _Mirror:
    """The most frequent shape: topics of partitions, by the names of the response's classes."""
    inner = _Mirror(asked=asked, answered="partitions", item=partition, key=key, fill=fill or {})
    return _Mirror(asked="topics", answered="topics", item=topic, inner=inner)


_OFFSET_FETCH_PARTITION = {"committed_offset": -1, "metadata": ""}

_MIRRORS: dict[int, tuple[_Mirror, ...]] = {
    ApiKey.PRODUCE: (
        _Mirror(
            asked="topic_data",
            answered="responses",
            item="TopicProduceResponse",
            inner=_Mirror(
                asked="partition_data",
                answered="partition_responses",
                item="PartitionProduceResponse",
                fill={"base_offset": -1},
            ),
        ),
    ),
    ApiKey.FETCH: (
        _Mirror(
            asked="topics",
            answered="responses",
            item="FetchableTopicResponse",
            inner=_Mirror(
                asked="partitions",
                answered="partitions",
                item="PartitionData",
                fill={"high_watermark": -1, "records": b""},
            ),
        ),
    ),
    ApiKey.LIST_OFFSETS: (_topics("ListOffsetsTopicResponse", "ListOffsetsPartitionResponse"),),
    ApiKey.METADATA: (_Mirror(asked="topics", answered="topics", item="MetadataResponseTopic"),),
    ApiKey.OFFSET_COMMIT: (_topics("OffsetCommitResponseTopic", "OffsetCommitResponsePartition"),),
    ApiKey.OFFSET_FETCH: (
        _topics(
            "OffsetFetchResponseTopic",
            "OffsetFetchResponsePartition",
            asked="partition_indexes",
            key="partition_index",
            fill=_OFFSET_FETCH_PARTITION,
        ),
        _Mirror(
            asked="groups",
            answered="groups",
            item="OffsetFetchResponseGroup",
            inner=_topics(
                "OffsetFetchResponseTopics",
                "OffsetFetchResponsePartitions",
                asked="partition_indexes",
                key="partition_index",
                fill=_OFFSET_FETCH_PARTITION,
            ),
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        _Mirror(
            asked="coordinator_keys",
            answered="coordinators",
            item="Coordinator",
            key="key",
            fill={"node_id": -1, "port": -1},
        ),
    ),
    ApiKey.DESCRIBE_GROUPS: (
        _Mirror(asked="groups", answered="groups", item="DescribedGroup", key="group_id"),
    ),
    ApiKey.CREATE_TOPICS: (
        _Mirror(asked="topics", answered="topics", item="CreatableTopicResult"),
    ),
    ApiKey.DELETE_TOPICS: (
        _Mirror(asked="topics", answered="responses", item="DeletableTopicResult"),
        _Mirror(asked="topic_names", answered="responses", item="DeletableTopicResult", key="name"),
    ),
    ApiKey.DELETE_RECORDS: (
        _topics(
            "DeleteRecordsTopicResult", "DeleteRecordsPartitionResult", fill={"low_watermark": -1}
        ),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_topics("OffsetForLeaderTopicResult", "EpochEndOffset"),),
    ApiKey.WRITE_TXN_MARKERS: (
        _Mirror(
            asked="markers",
            answered="markers",
            item="WritableTxnMarkerResult",
            inner=_topics(
                "WritableTxnMarkerTopicResult",
                "WritableTxnMarkerPartitionResult",
                asked="partition_indexes",
                key="partition_index",
            ),
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        _topics("TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition"),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        _Mirror(asked="resources", answered="results", item="DescribeConfigsResult"),
    ),
    ApiKey.ALTER_CONFIGS: (
        _Mirror(asked="resources", answered="responses", item="AlterConfigsResourceResponse"),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        _Mirror(asked="resources", answered="responses", item="AlterConfigsResourceResponse"),
    ),
    ApiKey.CREATE_PARTITIONS: (
        _Mirror(asked="topics", answered="results", item="CreatePartitionsTopicResult"),
    ),
    ApiKey.DELETE_GROUPS: (
        _Mirror(
            asked="groups_names", answered="results", item="DeletableGroupResult", key="group_id"
        ),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        _topics(
            "TopicResponse", "PartitionResponse", asked="partition_indexes", key="partition_index"
        ),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        _Mirror(
            asked="transactional_ids",
            answered="transaction_states",
            item="TransactionState",
            key="transactional_id",
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _Mirror(asked="group_ids", answered="groups", item="DescribedGroup", key="group_id"),
    ),
}

_TOP: dict[int, Mapping[str, Any]] = {
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
}
"""Fields at the top that say "none" other than by zero."""


def refusal(api_key: int, version: int, asked: Any, code: ErrorCode, message: str = "") -> Any:
    """The response entity that answers `code` for everything in the request entity `asked`."""
    s = messages.schema(api_key, version, "response")
    text = message or None
    values: dict[str, Any] = {"error_code": code, "error_message": text, **_TOP.get(api_key, {})}
    for mirror in _MIRRORS.get(api_key, ()):
        _reflect(s, mirror, asked, code, text, values)
    return s.root(**values)


def _reflect(
    s: messages.Schema,
    mirror: _Mirror,
    asked: Any,
    code: ErrorCode,
    text: str | None,
    into: dict[str, Any],
) -> None:
    """Put the list that mirrors `asked`'s into `into`, when this version of the request has it."""
    if not hasattr(asked, mirror.asked):
        return
    make = getattr(s, mirror.item)
    answers: list[Any] = []
    for item in getattr(asked, mirror.asked) or ():
        values: dict[str, Any] = {"error_code": code, "error_message": text, **mirror.fill}
        if mirror.key:
            values[mirror.key] = item
        for name in _IDENTITIES:
            if hasattr(item, name):
                values[name] = getattr(item, name)
        if "partition" in values:
            values["partition_index"] = values["partition"]
        if mirror.inner is not None:
            _reflect(s, mirror.inner, item, code, text, values)
        answers.append(make(**values))
    into[mirror.answered] = tuple(answers)
