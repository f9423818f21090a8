"""The partitions of OffsetCommit and TxnOffsetCommit: what is refused, what is stored, and the rows of the response.

Owns: what both requests share, and the names of topics that OffsetCommit v10 gives by id. A topic id that is not known
stands as `id:…`, which is no name of a topic, and is refused with UNKNOWN_TOPIC_ID.

Source: Kafka's OffsetMetadataManager, KafkaApis.handleOffsetCommitRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode
from ..ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from ..wire.request import Request
from ..wire.topic_ids import UUID
from .records import OffsetValue
from .service import GroupService

K = TypeVar("K")
V = TypeVar("V")
UNKNOWN_ID = "id:"


class TopicNames(Protocol):
    """The topics of the cluster."""

    def topic_name(self, topic_id: UUID | None) -> str | None:
        """The name that belongs to a topic id."""
        ...


def name_of(topic: Any, names: TopicNames) -> str:
    """The name of a requested topic, or `id:…`."""
    given: str | None = getattr(topic, "name", None)
    if given is not None:
        return given
    return names.topic_name(topic.topic_id) or f"{UNKNOWN_ID}{topic.topic_id}"


def offset_rows(body: Any, names: TopicNames) -> Iterable[tuple[TopicPartition, Any]]:
    """Each partition of the request, with its row."""
    for topic in body.topics:
        name = name_of(topic, names)
        for row in topic.partitions:
            yield TopicPartition(name, row.partition_index), row


def refused_rows(service: GroupService, request: Request, partitions: Iterable[TopicPartition]) -> list[ErrorCode]:
    """Why each partition is refused before the coordinator is asked; NONE for one that exists and may be read."""
    rows = list(partitions)
    denied = request.denied(Operation.READ, ResourceType.TOPIC, (tp.topic for tp in rows if not _is_unknown_id(tp)))
    failed = ErrorCode.topic_authorization_failed
    return [failed if tp.topic in denied else check_partition(service, tp) for tp in rows]


def _is_unknown_id(tp: TopicPartition) -> bool:
    return tp.topic.startswith(UNKNOWN_ID)


def check_partition(service: GroupService, tp: TopicPartition) -> ErrorCode:
    """NONE for a partition that exists. Kafka checks this before it asks the coordinator."""
    if _is_unknown_id(tp):
        return ErrorCode.unknown_topic_id
    if not 0 <= tp.partition < service.cache.partition_count(tp.topic):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none


def check_metadata(service: GroupService, row: Any) -> ErrorCode:
    """Why the metadata of an offset is refused; NONE when it may be stored."""
    metadata: str = row.committed_metadata or ""
    too_long = len(metadata) > service.config.number("offset.metadata.max.bytes")
    return ErrorCode.offset_metadata_too_large if too_long else ErrorCode.none


def offset_value(row: Any, now_ms: int, retention_ms: int = -1) -> OffsetValue:
    """What is stored of a row; `retention_ms` -1: the broker's own."""
    return OffsetValue(
        offset=Offset(row.committed_offset),
        leader_epoch=LeaderEpoch(getattr(row, "committed_leader_epoch", NO_EPOCH)),
        metadata=row.committed_metadata or "",
        timestamp_ms=now_ms,
        expire_timestamp_ms=-1 if retention_ms < 0 else now_ms + retention_ms,
    )


def errors_by_topic(
    service: GroupService,
    body: Any,
    errors: Sequence[ErrorCode],
    topic_row: Callable[..., Any],
    partition_row: Callable[..., Any],
) -> tuple[Any, ...]:
    """The rows of the response, in Kafka's order. `errors`: of each row of the request, as `offset_rows` gives them.

    The partitions that do not exist, or may not be read, are first, and then those that the coordinator was asked for.
    A topic that the request names twice has one row if one of the topics has such a partition. An existing topic
    without partitions has no row.
    """
    of_row = iter(errors)
    unknown: dict[tuple[Any, Any], list[Any]] = {}
    known: list[tuple[tuple[Any, Any], list[Any]]] = []
    for topic in body.topics:
        name = name_of(topic, service.cache)
        key = getattr(topic, "name", ""), getattr(topic, "topic_id", None)
        rows: tuple[list[Any], list[Any]] = ([], [])
        for row in topic.partitions:
            error = next(of_row)
            exists = check_partition(service, TopicPartition(name, row.partition_index)) is ErrorCode.none
            rows[exists and error is not ErrorCode.topic_authorization_failed].append(
                partition_row(partition_index=row.partition_index, error_code=error)
            )
        if rows[0] or not service.cache.partition_count(name):
            unknown.setdefault(key, []).extend(rows[0])
        if rows[1]:
            known.append((key, rows[1]))
    return tuple(
        topic_row(name=name, topic_id=topic_id, partitions=tuple(rows))
        for (name, topic_id), rows in merged_topics(unknown, known)
    )


def merged_topics(first: Mapping[K, list[V]], then: Iterable[tuple[K, list[V]]]) -> Iterable[tuple[K, list[V]]]:
    """The rows of `first`, each topic followed by its rows of `then`; `then` as it is where `first` has none.

    Source: the builders of Kafka's OffsetCommitResponse, TxnOffsetCommitResponse and OffsetDeleteResponse.
    """
    if not first:
        return then
    found = {key: list(rows) for key, rows in first.items()}
    for key, rows in then:
        found.setdefault(key, []).extend(rows)
    return found.items()
