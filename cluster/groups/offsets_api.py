"""OffsetCommit, OffsetFetch and OffsetDelete.

Owns: the translation between the protocol's versions and `GroupOffsets`. The response to a commit follows once all
in-sync replicas have it (acks=all), and OffsetFetch returns it only then. May fail: KafkaError only, which becomes the
error of the group, topic or partition, whichever the version has a field for.

A consumer that requires stable offsets (OffsetFetch v7) gets UNSTABLE_OFFSET_COMMIT for a partition with an offset
that is pending in a transaction, and tries again (KIP-447).
Source: Kafka's OffsetMetadataManager and OffsetFetchResponse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..coordinators import KeyValue
from ..errors import ErrorCode, KafkaError
from ..host.seam import OFFSET_READ, Committer
from ..host.seam.failpoints import AFTER_OFFSETS, BEFORE_OFFSETS, passes
from ..ids import Offset, TopicPartition, by_topic
from ..wire import messages
from .consumer.member_checks import MEMBER_EPOCH_FROM, check_commit, check_fetch
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .offset_rows import (
    UNKNOWN_ID,
    check_metadata,
    errors_by_topic,
    name_of,
    offset_rows,
    offset_value,
    refused_rows,
)
from .offsets import GroupOffsets
from .records import CONSUMER_PROTOCOL, OffsetValue, encode_offset_key, encode_offset_value
from .service import GroupService
from .streams.member_checks import check_commit as check_streams_commit
from .streams.member_checks import check_fetch as check_streams_fetch
from .subscriptions import subscribed_topics

if TYPE_CHECKING:
    from ..metadata import MetadataCache
    from ..wire.request import Request
    from ..wire.topic_ids import UUID

GROUP_ERROR_FROM = 2
MANY_GROUPS_FROM = 8
TOPIC_IDS_FROM = 10
DEFAULT_RETENTION = timedelta(milliseconds=-1)
"""Retention time of a commit that leaves the retention to the broker; versions from 5 on have no other."""
NO_OFFSET_VALUE = OffsetValue(offset=Offset(-1))

Errors = Mapping[TopicPartition, ErrorCode]
Row = dict[str, Any]
"""The fields of a partition of an OffsetFetch response."""


class OffsetsApi:
    """Handlers of the offset requests."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    # ---- OffsetCommit ----------------------------------------------------------------------------

    def offset_commit(self, request: Request) -> None:
        """OffsetCommit v2 to v10; v10 names topics by id."""
        body = request.decode()
        request.require(Operation.READ, ResourceType.GROUP, body.group_id)
        rows = list(offset_rows(body, self._service.cache))
        errors = refused_rows(self._service, request, (tp for tp, _ in rows))
        if all(errors):
            self._respond_to_commit(request, body, errors)
            return
        try:
            # as in Kafka, a member's epoch is not checked for an offset that is refused in any case
            accepted = [
                tp
                for known, (tp, row) in zip(errors, rows, strict=True)
                if not (known or check_metadata(self._service, row))
            ]
            shard, hosted = self._committer(body, request.version, accepted)
        except KafkaError as error:
            self._respond_to_commit(request, body, [known or error.code for known in errors])
            return
        errors = [error or check_metadata(self._service, row) for error, (_, row) in zip(errors, rows, strict=True)]
        values = {
            tp: self._value(row, body) for error, (tp, row) in zip(errors, rows, strict=True) if error is ErrorCode.none
        }
        if values:
            self._commit(request, body, shard, hosted, values, errors)
        else:
            self._respond_to_commit(request, body, errors)

    def _committer(
        self, body: Any, version: int, partitions: Sequence[TopicPartition]
    ) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(body.group_id)
        generation = body.generation_id_or_member_epoch
        if hosted is None:
            if generation >= 0:
                since_848 = version >= MEMBER_EPOCH_FROM
                raise KafkaError(ErrorCode.group_id_not_found if since_848 else ErrorCode.illegal_generation)
            hosted = shard.create(body.group_id)
        if hosted.share is not None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {body.group_id} is not a consumer group.")
        if hosted.consumer is not None:
            named = [(self._service.cache.topic_id(tp.topic), tp.partition) for tp in partitions]
            check_commit(hosted.consumer.data, body.group_id, body.member_id, generation, version, named)
            return shard, hosted
        if hosted.streams is not None:
            check_streams_commit(hosted.streams.data, body.group_id, body.member_id, generation, version, partitions)
            return shard, hosted
        now_ms = self._service.host.clock.monotonic_ms()
        instance = getattr(body, "group_instance_id", None)
        error = hosted.group.check_commit(body.member_id, instance, generation, now_ms)
        if error is not ErrorCode.none:
            raise KafkaError(error)
        return shard, hosted

    def _value(self, row: Any, body: Any) -> OffsetValue:
        now_ms = self._service.host.clock.wall_ms()
        retention_ms = messages.to_milliseconds(getattr(body, "retention_time", DEFAULT_RETENTION))
        return offset_value(row, now_ms, retention_ms)

    def _commit(
        self,
        request: Request,
        body: Any,
        shard: GroupShard,
        hosted: HostedGroup,
        values: Mapping[TopicPartition, OffsetValue],
        refused: Sequence[ErrorCode],
    ) -> None:
        group_id = hosted.group.group_id
        committer = Committer(request.client_id, body.member_id, body.generation_id_or_member_epoch)
        records: list[KeyValue] = [
            (encode_offset_key(group_id, tp), encode_offset_value(value)) for tp, value in values.items()
        ]

        def on_result(error: ErrorCode, base_offset: Offset) -> None:
            if error is ErrorCode.none:
                passes(host.failpoints, host.trace, AFTER_OFFSETS, group_id)
            hosted.offsets.end(values)
            tap = self._service.host.tap
            if tap.enabled:
                offsets = [(tp, value.offset) for tp, value in values.items()]
                tap.committed(group_id, offsets, error=int(error), invoked_ns=request.received_ns, by=committer)
            if error is ErrorCode.none:
                for delta, (tp, value) in enumerate(values.items()):
                    hosted.offsets.put(tp, value, Offset(base_offset + delta))
            self._respond_to_commit(request, body, [row or error for row in refused])

        host = self._service.host
        passes(host.failpoints, host.trace, BEFORE_OFFSETS, group_id)
        hosted.offsets.begin(values)
        shard.write(records, on_result)

    def _respond_to_commit(self, request: Request, body: Any, errors: Sequence[ErrorCode]) -> None:
        s = messages.response(request)
        topics = errors_by_topic(
            self._service, body, errors, s.OffsetCommitResponseTopic, s.OffsetCommitResponsePartition
        )
        request.respond(s.OffsetCommitResponse(topics=topics))

    # ---- OffsetFetch -----------------------------------------------------------------------------

    def offset_fetch(self, request: Request) -> None:
        """OffsetFetch v1 to v10; from v8 on for several groups at once, in v10 with topic ids."""
        body = request.decode()
        s = messages.response(request)
        if request.version >= MANY_GROUPS_FROM:
            stable = body.require_stable
            groups = tuple(self._fetch_group(s, group, request, stable=stable) for group in body.groups)
            request.respond(s.OffsetFetchResponse(groups=groups))
            return
        error, offsets = self._offsets_of(request, body.group_id)
        stable = getattr(body, "require_stable", False)
        # v0 and v1 have no field for an error of the group: each partition carries it.
        row_error = error if request.version < GROUP_ERROR_FROM else ErrorCode.none
        rows = list(_fetch_topics(body.topics, offsets, error, row_error))
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic for topic, _ in rows))
        if body.topics is None:
            rows = [row for row in rows if row[0] not in denied]
        fetched = [
            (topic, [_fetched(topic, i, offsets, code, stable=stable) for i in indexes])
            for topic, indexes in rows
            for code in (row_error or _error_of(topic, denied),)
        ]
        self._tap_read(body.group_id, fetched, request)
        topics = tuple(
            s.OffsetFetchResponseTopic(
                name=topic, partitions=tuple(s.OffsetFetchResponsePartition(**row) for row in found)
            )
            for topic, found in fetched
        )
        request.respond(s.OffsetFetchResponse(error_code=error, topics=topics))

    def _fetch_group(self, s: Any, body: Any, request: Request, *, stable: bool) -> Any:
        member_id, epoch = getattr(body, "member_id", None), getattr(body, "member_epoch", -1)
        error, offsets = self._offsets_of(request, body.group_id, member_id, epoch)
        cache = self._service.cache
        requested = list(_requested_topics(body.topics, offsets, error, cache))
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, (topic for topic, _, _ in requested))
        if body.topics is None:
            requested = [row for row in requested if row[0] not in denied]
        fetched = [
            (topic, [_fetched(topic, i, offsets, _error_of(topic, denied), stable=stable) for i in indexes])
            for topic, _, indexes in requested
        ]
        self._tap_read(body.group_id, fetched, request)
        by_id = request.version >= TOPIC_IDS_FROM
        topics = tuple(
            s.OffsetFetchResponseTopics(
                name=topic, topic_id=topic_id, partitions=tuple(s.OffsetFetchResponsePartitions(**row) for row in rows)
            )
            for (topic, topic_id, _), (_, rows) in zip(requested, fetched, strict=True)
            if not by_id or topic_id is not None or body.topics is not None
        )
        return s.OffsetFetchResponseGroup(group_id=body.group_id, topics=topics, error_code=error)

    def _tap_read(self, group_id: str, fetched: Iterable[tuple[str, Iterable[Row]]], request: Request) -> None:
        """Record the offsets that the response has; not the partitions without an offset."""
        tap = self._service.host.tap
        if not tap.enabled:
            return
        read = [
            (TopicPartition(topic, row["partition_index"]), row["committed_offset"])
            for topic, rows in fetched
            for row in rows
            if row["committed_offset"] >= 0
        ]
        by = Committer(request.client_id)
        tap.committed(group_id, read, error=0, invoked_ns=request.received_ns, by=by, kind=OFFSET_READ)

    def _offsets_of(
        self, request: Request, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[ErrorCode, GroupOffsets]:
        try:
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            _, hosted = self._service.find(group_id)
            if hosted is not None and hosted.consumer is not None:
                check_fetch(hosted.consumer.data, group_id, member_id, epoch)
            if hosted is not None and hosted.streams is not None:
                check_streams_fetch(hosted.streams.data, group_id, member_id, epoch)
        except KafkaError as error:
            return error.code, GroupOffsets()
        return ErrorCode.none, GroupOffsets() if hosted is None else hosted.offsets

    # ---- OffsetDelete ----------------------------------------------------------------------------

    def offset_delete(self, request: Request) -> None:
        """OffsetDelete v0: tombstones for offsets of topics that no member subscribes to."""
        body = request.decode()
        request.require(Operation.DELETE, ResourceType.GROUP, body.group_id)
        requested = [
            TopicPartition(topic.name, row.partition_index) for topic in body.topics for row in topic.partitions
        ]
        checked = zip(requested, refused_rows(self._service, request, requested), strict=True)
        refused = {tp: error for tp, error in checked if error is not ErrorCode.none}
        try:
            shard, hosted = self._existing(body.group_id)
            in_use = _in_use(hosted, requested)
        except KafkaError as error:
            s = messages.response(request)
            request.respond(s.OffsetDeleteResponse(error_code=error.code, topics=()))
            return
        refused = {**dict.fromkeys(in_use, ErrorCode.group_subscribed_to_topic), **refused}
        known = [tp for tp in requested if tp not in refused and hosted.offsets.has_record(tp)]
        if not known:
            self._respond_to_delete(request, body, requested, refused)
            return

        def on_result(error: ErrorCode, base_offset: Offset) -> None:
            if error is ErrorCode.none:
                for delta, tp in enumerate(known):
                    hosted.offsets.remove(tp, Offset(base_offset + delta))
            outcome = {**dict.fromkeys(known, error), **refused}
            self._respond_to_delete(request, body, requested, outcome)

        group_id = hosted.group.group_id
        tombstones: list[KeyValue] = [(encode_offset_key(group_id, tp), None) for tp in known]
        shard.write(tombstones, on_result)

    def _respond_to_delete(
        self, request: Request, body: Any, requested: Sequence[TopicPartition], errors: Errors
    ) -> None:
        s = messages.response(request)
        codes = [errors.get(tp, ErrorCode.none) for tp in requested]
        row, partition = s.OffsetDeleteResponseTopic, s.OffsetDeleteResponsePartition
        topics = errors_by_topic(self._service, body, codes, row, partition)
        request.respond(s.OffsetDeleteResponse(error_code=ErrorCode.none, topics=topics))

    def _existing(self, group_id: str) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find_named(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.group_id_not_found)
        if hosted.share is not None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return shard, hosted


def _in_use(hosted: HostedGroup, requested: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Partitions of topics that a member subscribes to: all of them where the subscriptions cannot be read.

    KafkaError(non_empty_group) for a group of members that are no consumers.
    """
    subscribed = subscribed_topics(hosted)
    if subscribed is None and hosted.group.members.protocol_type != CONSUMER_PROTOCOL:
        raise KafkaError(ErrorCode.non_empty_group)
    return [tp for tp in requested if subscribed is None or tp.topic in subscribed]


def _fetch_topics(
    requested: Iterable[Any] | None, offsets: GroupOffsets, error: ErrorCode, row_error: ErrorCode = ErrorCode.none
) -> Iterable[tuple[str, Iterable[int]]]:
    """Topics and partitions of the response: the requested ones, or every committed one when null was requested.

    None when the whole group has an error, unless the version has a field only for errors of partitions.
    """
    if error is not row_error:
        return []
    if requested is not None:
        return [(topic.name, topic.partition_indexes) for topic in requested]
    found = by_topic(offsets)
    return [(topic, sorted(tp.partition for tp in found[topic])) for topic in sorted(found)]


def _requested_topics(
    requested: Iterable[Any] | None, offsets: GroupOffsets, error: ErrorCode, cache: MetadataCache
) -> Iterable[tuple[str, UUID | None, Iterable[int]]]:
    """As `_fetch_topics`, with the topics' ids, for the versions that may name topics by id."""
    if requested is None or error is not ErrorCode.none:
        for name, indexes in _fetch_topics(requested, offsets, error):
            yield name, cache.topic_id(name), indexes
        return
    for topic in requested:
        name = name_of(topic, cache)
        topic_id = getattr(topic, "topic_id", None) or cache.topic_id(name)
        yield name, topic_id, topic.partition_indexes


def _error_of(topic: str, denied: Collection[str]) -> ErrorCode:
    if topic.startswith(UNKNOWN_ID):
        return ErrorCode.unknown_topic_id
    return ErrorCode.topic_authorization_failed if topic in denied else ErrorCode.none


def _fetched(topic: str, index: int, offsets: GroupOffsets, error: ErrorCode, *, stable: bool) -> Row:
    tp = TopicPartition(topic, index)
    value = offsets.get(tp) or NO_OFFSET_VALUE
    if stable and error is ErrorCode.none and offsets.is_unstable(tp):
        value, error = NO_OFFSET_VALUE, ErrorCode.unstable_offset_commit
    return {
        "partition_index": index,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": error,
    }
