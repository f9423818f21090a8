"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: administrators and start offsets.

Owns: requests and responses. Offsets are altered and deleted only in a group without members; the share-partitions are
stored as initializing or deleting before the persister is asked. May fail: KafkaError only, which becomes the error of
the response, of the topic or of the partition.

Source: Kafka's KafkaApis.handle…ShareGroupOffsets…, GroupCoordinatorService, GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset, TopicPartition
from ..share_coordinator.values import SharePartition, StateSummary
from ..wire import messages
from ..wire.request import denial
from ..wire.topic_ids import UUID, text_of
from .consumer.members import by_topic_id
from .service import GroupService
from .share.initialization import begin, delete_topic, deleted
from .share.members import NamedPartitions
from .share.share_records import StatePartitionsRecord
from .share.share_state import ShareDraft
from .share_api import share_group
from .share_hosting import Errors

if TYPE_CHECKING:
    from ..wire.request import Request

NO_LAG = -1
LAG_FROM = 1
"""First version of DescribeShareGroupOffsets with the lag."""
ABSENT = StateSummary(0, LeaderEpoch(0), NO_OFFSET)
"""What Kafka shows where the persister refuses."""
UNKNOWN_TOPIC = "This server does not host this topic-partition."
UNEXPECTED = "The server experienced an unexpected error when processing the request."
"""Kafka's text for a partition below 0."""
NOT_EMPTY = "The group is not empty."
NOTHING_TO_DELETE = "There is no offset information to delete."


class EndOffsets(Protocol):
    """Where topic-partitions end, as their leaders say."""

    async def end_offset(self, tp: TopicPartition) -> Offset:
        """The offset of the next record to be produced that consumers could read; KafkaError."""
        ...


class ShareOffsetsApi:
    """Handlers of the requests about offsets of share groups."""

    def __init__(self, service: GroupService, ends: EndOffsets | None) -> None:
        self._service = service
        self._view = service.share_rules.view
        self._ends = ends

    # ---- DescribeShareGroupOffsets -----------------------------------------------------------------

    async def describe_offsets(self, request: Request) -> None:
        """DescribeShareGroupOffsets v0 and v1."""
        body = request.decode()
        s = messages.response(request)
        groups = [await self._described(s, request, group) for group in body.groups]
        request.respond(s.DescribeShareGroupOffsetsResponse(groups=tuple(groups)))

    async def _described(self, s: Any, request: Request, asked: Any) -> Any:
        group_id = asked.group_id
        try:
            self._check_served()
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            if asked.topics is None:
                topics, refused = self._all_topics(group_id, request), tuple[Any, ...]()
            else:
                denied = request.denied(
                    Operation.DESCRIBE, ResourceType.TOPIC, [row.topic_name for row in asked.topics]
                )
                topics = [(row.topic_name, row.partitions) for row in asked.topics if row.topic_name not in denied]
                refused = tuple(row for row in asked.topics if row.topic_name in denied)
            named: dict[str, dict[int, None]] = {}
            for name, rows in topics:  # as in Kafka, names and numbers that are there twice count once
                if self._view.topic_id(name) is not None:
                    named.setdefault(name, {}).update(dict.fromkeys(rows))
            _check_asked(group_id, [rows for name, rows in topics if name in named])
            unknown = [(name, rows) for name, rows in topics if self._view.topic_id(name) is None]
            found = [await self._described_topic(s, request.version, group_id, *row) for row in named.items()]
        except KafkaError as error:
            unexplained = error.code in (ErrorCode.group_authorization_failed, ErrorCode.unsupported_version)
            text = None if unexplained else error.message or None
            return s.DescribeShareGroupOffsetsResponseGroup(
                group_id=group_id, topics=(), error_code=error.code, error_message=text
            )
        found += [_empty_topic(s, request.version, name, rows, None) for name, rows in unknown]
        unauthorized = denial(ResourceType.TOPIC)
        found += [_empty_topic(s, request.version, row.topic_name, row.partitions, unauthorized) for row in refused]
        return s.DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, topics=tuple(found), error_code=ErrorCode.none, error_message=None
        )

    def _all_topics(self, group_id: str, request: Request) -> list[tuple[str, Sequence[int]]]:
        _, hosted = self._service.find(group_id)
        if hosted is None or hosted.share is None:
            return []
        initialized = hosted.share.data.state_partitions().initialized
        named = [(self._view.topic_name(topic_id), row.partitions) for topic_id, row in initialized.items()]
        rows = sorted((name, sorted(numbers)) for name, numbers in named if name is not None)
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, [name for name, _ in rows])
        return [(name, numbers) for name, numbers in rows if name not in denied]

    async def _described_topic(self, s: Any, version: int, group_id: str, name: str, numbers: Iterable[int]) -> Any:
        topic_id = self._view.topic_id(name)
        assert topic_id is not None, f"{name} exists"
        rows = [await self._described_partition(s, version, group_id, topic_id, name, number) for number in numbers]
        return s.DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=tuple(rows))

    async def _described_partition(
        self, s: Any, version: int, group_id: str, topic_id: UUID, name: str, number: int
    ) -> Any:
        persister = self._service.persister
        assert persister is not None, "checked before"
        try:
            summary = await persister.summary(SharePartition(group_id, topic_id, number), leader_epoch=NO_EPOCH)
        except KafkaError:
            summary = ABSENT
        lag = NO_LAG
        measured = summary.start_offset != NO_OFFSET and summary.delivery_complete_count >= 0
        if version >= LAG_FROM and measured and self._ends is not None:
            try:
                end = await self._ends.end_offset(TopicPartition(name, number))
            except KafkaError as error:
                return _partition(s, version, number, 0, 0, 0, error)
            lag = _int64(end - summary.start_offset - summary.delivery_complete_count)
        return _partition(s, version, number, summary.start_offset, summary.leader_epoch, lag, None)

    # ---- AlterShareGroupOffsets --------------------------------------------------------------------

    def alter_offsets(self, request: Request) -> None:
        """AlterShareGroupOffsets v0: new start offsets; the group is created if there is none."""
        body = request.decode()
        s = messages.response(request)

        def refuse(error: KafkaError) -> None:
            text = error.message or None
            request.respond(s.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=text, responses=()))

        try:
            self._check_served()
            request.require(Operation.READ, ResourceType.GROUP, body.group_id)
            shard, hosted = self._service.find_named(body.group_id)
            if hosted is None:
                hosted = shard.create(body.group_id)
                shard.share_hosting.begin(hosted)
            group = share_group(hosted, body.group_id)
        except KafkaError as error:
            refuse(error)
            return
        offsets, errors = self._wanted(request, body)
        negative = self._negative(body, errors)

        def plan(draft: ShareDraft) -> Callable[[], None]:
            if draft.state.members:
                raise KafkaError(ErrorCode.non_empty_group, NOT_EMPTY)
            if negative is not None:
                raise negative
            if not offsets:
                return partial(answer, {})
            named = {
                topic_id: NamedPartitions(self._view.topic_name(topic_id) or "", numbers)
                for topic_id, numbers in by_topic_id(offsets).items()
            }
            draft.add(StatePartitionsRecord(begin(draft.state.state_partitions(), named)))
            return partial(shard.share_hosting.initialize, group, offsets, draft.state.epoch, answer)

        def answer(refused: Errors) -> None:
            discard()
            request.respond(self._altered(s, body, {**errors, **self._named(refused)}))

        def discard() -> None:
            shard.share_hosting.abandon(hosted, group)
            shard.discard_if_idle(hosted)

        def refused(error: KafkaError) -> None:
            discard()
            refuse(error)

        group.submit(plan, refused)

    def _wanted(
        self, request: Request, body: Any
    ) -> tuple[dict[tuple[UUID, int], Offset], dict[tuple[str, int], KafkaError]]:
        """The new start offsets, and the partitions that are refused."""
        denied = request.denied(Operation.READ, ResourceType.TOPIC, [topic.topic_name for topic in body.topics])
        offsets: dict[tuple[UUID, int], Offset] = {}
        errors: dict[tuple[str, int], KafkaError] = {}
        for topic in body.topics:
            topic_id, count = self._view.topic_id(topic.topic_name), self._view.partition_count(topic.topic_name)
            for row in topic.partitions:
                if topic.topic_name in denied:
                    errors[topic.topic_name, row.partition_index] = denial(ResourceType.TOPIC)
                elif topic_id is None or not 0 <= row.partition_index < count:
                    error = KafkaError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)
                    errors[topic.topic_name, row.partition_index] = error
                else:
                    offsets[topic_id, row.partition_index] = Offset(row.start_offset)
        return offsets, errors

    def _negative(self, body: Any, errors: Mapping[tuple[str, int], KafkaError]) -> KafkaError | None:
        """The error of the whole request for a partition below 0 of a topic that is there, as Kafka words it."""
        for topic in body.topics:
            topic_id = self._view.topic_id(topic.topic_name)
            for row in topic.partitions if topic_id is not None else ():
                refused = errors.get((topic.topic_name, row.partition_index))
                is_denied = refused is not None and refused.code is ErrorCode.topic_authorization_failed
                if row.partition_index < 0 and topic_id is not None and not is_denied:
                    place = f"{body.group_id} {text_of(topic_id)} {row.partition_index}"
                    text = f"Initialize share group parameters has invalid partitionId - {place}"
                    return KafkaError(ErrorCode.unknown_server_error, text)
        return None

    def _named(self, errors: Errors) -> dict[tuple[str, int], KafkaError]:
        return {(self._view.topic_name(topic_id) or "", number): row for (topic_id, number), row in errors.items()}

    def _altered(self, s: Any, body: Any, errors: Mapping[tuple[str, int], KafkaError]) -> Any:
        topics: dict[str, list[Any]] = {}
        for topic in body.topics:
            rows = topics.setdefault(topic.topic_name, [])
            for row in topic.partitions:
                error = errors.get((topic.topic_name, row.partition_index))
                code, text = (ErrorCode.none, None) if error is None else (error.code, error.message or None)
                rows.append(
                    s.AlterShareGroupOffsetsResponsePartition(
                        partition_index=row.partition_index, error_code=code, error_message=text
                    )
                )
        found = tuple(
            s.AlterShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=self._view.topic_id(name), partitions=tuple(rows)
            )
            for name, rows in topics.items()
            if rows or self._view.topic_id(name) is not None
        )
        return s.AlterShareGroupOffsetsResponse(error_code=ErrorCode.none, responses=found)

    # ---- DeleteShareGroupOffsets -------------------------------------------------------------------

    def delete_offsets(self, request: Request) -> None:
        """DeleteShareGroupOffsets v0: the share group forgets whole topics."""
        body = request.decode()
        s = messages.response(request)

        def refuse(error: KafkaError) -> None:
            text = error.message or None
            request.respond(s.DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=text, responses=()))

        try:
            self._check_served()
            request.require(Operation.DELETE, ResourceType.GROUP, body.group_id)
            shard, hosted = self._service.find_named(body.group_id)
            group = share_group(hosted, body.group_id)
        except KafkaError as error:
            refuse(error)
            return
        names: list[str] = [topic.topic_name for topic in body.topics]
        denied = request.denied(Operation.READ, ResourceType.TOPIC, names)
        rows: list[tuple[str, KafkaError | None]] = [
            (name, denial(ResourceType.TOPIC)) for name in names if name in denied
        ]

        def plan(draft: ShareDraft) -> Callable[[], None]:
            if draft.state.members:
                raise KafkaError(ErrorCode.non_empty_group, NOT_EMPTY)
            partitions = self._begin_delete(draft, [name for name in names if name not in denied], rows)
            if not partitions:
                return answer
            return partial(
                shard.share_hosting.delete, body.group_id, partitions, partial(states_deleted, list(partitions))
            )

        def states_deleted(topic_ids: Sequence[UUID], errors: Errors) -> None:
            refused = {topic_id: error for (topic_id, _), error in errors.items()}
            done = [topic_id for topic_id in topic_ids if topic_id not in refused]
            rows.extend((self._view.topic_name(topic_id) or "", refused.get(topic_id)) for topic_id in topic_ids)
            change = group.change_partitions(lambda state: deleted(state, done))

            def forget(draft: ShareDraft) -> Callable[[], None]:
                change(draft)
                return answer

            group.submit(forget, refuse)

        def answer() -> None:
            topics = tuple(self._deleted(s, name, error) for name, error in rows)
            request.respond(s.DeleteShareGroupOffsetsResponse(error_code=ErrorCode.none, responses=topics))

        group.submit(plan, refuse)

    def _begin_delete(
        self, draft: ShareDraft, names: Iterable[str], rows: list[tuple[str, KafkaError | None]]
    ) -> dict[UUID, frozenset[int]]:
        """Topics are deleting; which partitions the persister is to delete. `rows` gets the refused topics."""
        before = state = draft.state.state_partitions()
        partitions: dict[UUID, frozenset[int]] = {}
        for name in names if draft.state.shares is not None else ():
            topic_id = self._view.topic_id(name)
            if topic_id is None:
                rows.append((name, KafkaError(ErrorCode.unknown_topic_or_partition, UNKNOWN_TOPIC)))
                continue
            state, numbers = delete_topic(state, topic_id, name, self._view.partition_count(name))
            if numbers:
                partitions[topic_id] = numbers
            else:
                rows.append((name, KafkaError(ErrorCode.unknown_topic_or_partition, NOTHING_TO_DELETE)))
        if state != before:
            draft.add(StatePartitionsRecord(state))
        return partitions

    def _deleted(self, s: Any, name: str, error: KafkaError | None) -> Any:
        return s.DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=self._view.topic_id(name) if error is None else None,
            error_code=ErrorCode.none if error is None else error.code,
            error_message=None if error is None else error.message or None,
        )

    def _check_served(self) -> None:
        if self._service.persister is None:
            raise KafkaError(ErrorCode.unsupported_version)


def _int64(value: int) -> int:
    """A sum as Java has it: a start offset below 0, which AlterShareGroupOffsets takes, lets it overflow."""
    return (value + 2**63) % 2**64 - 2**63


def _check_asked(group_id: str, topics: Collection[Collection[int]]) -> None:
    """UNKNOWN_SERVER_ERROR for what the persister refuses: no group id, no partition, a partition below 0."""
    if topics and (not group_id or any(not numbers or min(numbers) < 0 for numbers in topics)):
        raise KafkaError(ErrorCode.unknown_server_error, UNEXPECTED)


def _empty_topic(s: Any, version: int, name: str, numbers: Iterable[int], error: KafkaError | None) -> Any:
    rows = tuple(_partition(s, version, number, NO_OFFSET, 0, NO_LAG, error) for number in numbers)
    return s.DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=None, partitions=rows)


def _partition(
    s: Any, version: int, number: int, start: int, leader_epoch: int, lag: int, error: KafkaError | None
) -> Any:
    more = {"lag": lag} if version >= LAG_FROM else {}
    return s.DescribeShareGroupOffsetsResponsePartition(
        partition_index=number,
        start_offset=start,
        leader_epoch=leader_epoch,
        error_code=ErrorCode.none if error is None else error.code,
        error_message=None if error is None else error.message or None,
        **more,
    )
