"""DescribeTopicPartitions: the metadata of topics in pages, with a cursor (KIP-966).

Owns: the handler. Topics are in the order of their names; a response has at most `response_partition_limit` partitions,
at least one and at most `max.request.partition.size.limit`, and names where the next page begins. Brokers have no
eligible leader replicas (ELR), so these lists are empty.

Source: Kafka's `DescribeTopicPartitionsRequestHandler`, `KRaftMetadataCache.describeTopicResponse`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..authorizer import Operation, ResourceType
from ..config import BrokerConfig
from ..errors import ErrorCode
from ..internal_topics import INTERNAL_TOPICS
from ..topic_names import is_valid_topic_name
from ..wire import messages
from ..wire.request import Request
from .cache import MetadataCache, PartitionInfo, TopicInfo
from .metadata_api import OPERATIONS_UNASKED

__all__ = ["TopicPartitionsApi"]


@dataclass(slots=True)
class _Page:
    """The topics of one response, and where the next page begins."""

    left: int
    topics: list[Any] = field(default_factory=list[Any])
    next: tuple[str, int] | None = None


class TopicPartitionsApi:
    """Handler of DescribeTopicPartitions."""

    def __init__(self, config: BrokerConfig, cache: MetadataCache) -> None:
        self._config = config
        self._cache = cache

    def describe(self, request: Request) -> None:
        """Serve DescribeTopicPartitions."""
        entity = request.decode()
        s = messages.response(request)
        asked = [row.name for row in entity.topics]
        requested = sorted(set(asked))
        names: Iterable[str] = requested or sorted(self._cache.topic_names())
        first, begin = "", 0
        if entity.cursor is not None:
            first, begin = entity.cursor.topic_name, entity.cursor.partition_index
        names = [name for name in names if name >= first]
        elsewhere = requested and entity.cursor is not None and names[:1] != [first]
        if elsewhere or begin < 0:
            _refuse(request, asked)
            return
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, names)
        most = self._config.number("max.request.partition.size.limit")
        page = _Page(max(1, min(entity.response_partition_limit, most)))
        for name in names:
            if name in denied:
                continue
            if page.left <= 0:
                page.next = page.next or (name, 0)
                break
            self._add(request, page, name, begin if name == first else 0)
        if requested:  # as in Kafka, behind the others
            failed = ErrorCode.topic_authorization_failed
            page.topics.extend(_topic(request, name, None, failed, ()) for name in names if name in denied)
        cursor = None if page.next is None else s.Cursor(topic_name=page.next[0], partition_index=page.next[1])
        request.respond(s.DescribeTopicPartitionsResponse(topics=tuple(page.topics), next_cursor=cursor))

    def _add(self, request: Request, page: _Page, name: str, begin: int) -> None:
        s = messages.response(request)
        topic = self._cache.topic(name)
        if topic is None:
            code = ErrorCode.unknown_topic_or_partition
            if not is_valid_topic_name(name):
                code = ErrorCode.invalid_topic_exception
            page.topics.append(_topic(request, name, None, code, ()))
            return
        numbers = [number for number in sorted(topic.partitions) if number >= begin]
        rows = tuple(self._partition(s, number, topic.partitions[number]) for number in numbers[: page.left])
        page.topics.append(_topic(request, name, topic, ErrorCode.none, rows))
        if len(rows) < len(numbers):
            page.next = name, numbers[len(rows)]
        page.left -= len(rows)

    def _partition(self, s: messages.Schema, number: int, row: PartitionInfo) -> Any:
        dead = (n for n in row.replicas if n not in row.offline and not self._cache.is_alive(n))
        return s.DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none,
            partition_index=number,
            leader_id=row.leader,
            leader_epoch=row.leader_epoch,
            replica_nodes=row.replicas,
            isr_nodes=row.isr,
            eligible_leader_replicas=(),
            last_known_elr=(),
            offline_replicas=(*row.offline, *dead),
        )


def _refuse(request: Request, names: Iterable[str]) -> None:
    """As in Kafka, with a row for each topic of the request, none of which is internal."""
    rows = tuple(_topic(request, name, None, ErrorCode.invalid_request, ()) for name in names)
    request.respond(messages.response(request).DescribeTopicPartitionsResponse(topics=rows, next_cursor=None))


def _topic(request: Request, name: str, topic: TopicInfo | None, code: ErrorCode, rows: tuple[Any, ...]) -> Any:
    asked = code not in (ErrorCode.invalid_request, ErrorCode.topic_authorization_failed)
    return messages.response(request).DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=None if topic is None else topic.topic_id,
        is_internal=asked and name in INTERNAL_TOPICS,
        partitions=rows,
        topic_authorized_operations=request.authorized_operations(ResourceType.TOPIC, name)
        if asked
        else OPERATIONS_UNASKED,
    )
