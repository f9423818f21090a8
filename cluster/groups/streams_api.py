"""StreamsGroupHeartbeat, StreamsGroupDescribe, StreamsGroupTopologyDescriptionUpdate: requests and responses.

Owns: the translation between the protocol and the operations of `StreamsGroup`. The response to a heartbeat that
changed the group leaves once its records are in the log. A heartbeat also has the broker create internal topics that
are missing, if its sender may create them. There is no plugin for descriptions of topologies (KIP-1331): no member is
asked for one, and each that is sent is refused with UNSUPPORTED_VERSION, as in Kafka without a plugin. May fail:
KafkaError only, which becomes the error of the response, with its message.

Source: Kafka's KafkaApis.handleStreamsGroupHeartbeat, GroupCoordinatorService, StreamsGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..config.streams_table import STICKY
from ..errors import ErrorCode, KafkaError
from ..wire import messages
from ..wire.request import denial
from .authorized_operations import authorized_operations
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .service import GroupService
from .states import GroupState
from .streams.group_state import Draft
from .streams.heartbeats import Moment, heartbeat, leave
from .streams.internal_topics import ConfiguredTopology, Status, StatusCode
from .streams.members import JOIN_EPOCH, Endpoint, StreamsMember
from .streams.requests import (
    NO_OFFSETS,
    HeartbeatRequest,
    HeartbeatResult,
    TaskOffsets,
    check_request,
    check_topics,
    names_of,
)
from .streams.streams_group import StreamsGroup
from .streams.tasks import TaskId, Tasks, TaskSets, by_subtopology
from .streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology, topology
from .streams_topics import StreamsTopics

if TYPE_CHECKING:
    from ..wire.request import Request

FAILURES_NAMED_MOST = 3
LAG_FROM = 1
"""In version 0 the field of the acceptable lag is not used any more."""
NOT_REQUESTED, NOT_STORED = 0, 1
"""Statuses of a description: the others are those of a plugin."""
NO_PLUGIN = "The broker has no streams group topology description plugin configured."
UNDESCRIBABLE = "The described group uses topics that the client is not authorized to describe."


class StreamsApi:
    """Handlers of the requests of KIP-1071."""

    def __init__(self, service: GroupService, topics: StreamsTopics) -> None:
        self._service = service
        self._topics = topics

    # ---- StreamsGroupHeartbeat ---------------------------------------------------------------------

    def streams_group_heartbeat(self, request: Request) -> None:
        """StreamsGroupHeartbeat v0 and v1."""
        asked = _request_of(request)
        s = messages.response(request)

        def reply(result: HeartbeatResult) -> None:
            statuses = self._create_missing(request, asked, result)
            request.respond(_response(s, result, statuses))

        def refuse(error: KafkaError) -> None:
            request.respond(
                s.StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None, status=())
            )

        try:
            self._check(request, asked)
            shard, hosted = self._group_of(asked)
        except KafkaError as error:
            refuse(error)
            return
        self._submit(shard, hosted, asked, reply, refuse)

    def _check(self, request: Request, asked: HeartbeatRequest) -> None:
        if not self._service.serves_streams:
            raise KafkaError(ErrorCode.unsupported_version)
        request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
        topics = check_topics(asked.topology)
        if request.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics):
            raise denial(ResourceType.TOPIC)
        check_request(asked)

    def _group_of(self, asked: HeartbeatRequest) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(asked.group_id)
        joins = asked.epoch == JOIN_EPOCH
        if hosted is None:
            if not joins:
                kind = "Group" if asked.epoch < JOIN_EPOCH else "Streams group"
                text = f"{kind} {asked.group_id} not found."
                raise KafkaError(ErrorCode.group_id_not_found, text)
            hosted = shard.create(asked.group_id)
        if hosted.streams is None:
            is_empty_classic = hosted.is_classic and hosted.group.state is GroupState.EMPTY
            if not joins or not is_empty_classic:
                text = f"Group {asked.group_id} is not a streams group."
                raise KafkaError(ErrorCode.group_id_not_found, text)
        return shard, hosted

    def _submit(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        asked: HeartbeatRequest,
        reply: Callable[[HeartbeatResult], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        hosting = shard.streams_hosting
        group = hosted.streams or hosting.begin(hosted)

        def plan(draft: Draft) -> Callable[[], None]:
            if asked.epoch < JOIN_EPOCH:
                if asked.shutdown and group.known.shutdown_by is None:
                    group.known.shutdown_by = asked.member_id
                return partial(reply, leave(draft, asked))
            hosting.convert(hosted, group, draft)
            was_empty = not draft.state.members
            moment = Moment(
                topics_version=self._service.topics_version, delays=lambda: group.delays(was_empty=was_empty)
            )
            result, known = heartbeat(draft, asked, group.rules, group.known, moment)

            def adopt() -> None:
                group.known = known

            def heard() -> None:
                adopt()
                member = group.data.members.get(result.member_id)
                if member is not None:
                    group.member_heard(member)
                reply(result)

            # what is known belongs to the state: a write that timed out is in the log, too
            draft.on_applied.append(adopt)
            return heard

        def refused(error: KafkaError) -> None:
            hosting.abandon(hosted, group)
            shard.discard_if_idle(hosted)
            refuse(error)

        group.submit(plan, refused)

    def _create_missing(self, request: Request, asked: HeartbeatRequest, result: HeartbeatResult) -> list[Status]:
        """Create internal topics if the sender may; returns the statuses, which say what prevents it."""
        statuses = list(result.statuses)
        if not result.missing:
            return statuses
        denied: Iterable[str] = ()
        if not request.unrestricted and not request.allows(Operation.CREATE, *CLUSTER):
            denied = request.denied(Operation.CREATE, ResourceType.TOPIC, names_of(result.missing))
        if denied:
            named = ", ".join(name for name in names_of(result.missing) if name in denied)
            return _with_detail(statuses, f"; Unauthorized to CREATE on topics {named}.")
        interval_ms = self._service.streams_rules.heartbeat_interval_ms(asked.group_id)
        self._topics.create(result.missing, 2 * interval_ms)
        failures = self._topics.failures(result.missing)
        if failures:
            named = ", ".join(f"{topic} ({text})" for topic, text in failures[:FAILURES_NAMED_MOST])
            more = len(failures) - FAILURES_NAMED_MOST
            return _with_detail(statuses, f"; Creation failed: {named}{f' and {more} more' if more > 0 else ''}.")
        return statuses

    # ---- StreamsGroupDescribe ----------------------------------------------------------------------

    def streams_group_describe(self, request: Request) -> None:
        """StreamsGroupDescribe v0 and v1."""
        body = request.decode()
        s = messages.response(request)
        groups = tuple(self._described(s, request, body, group_id) for group_id in body.group_ids)
        request.respond(s.StreamsGroupDescribeResponse(groups=groups))

    def _described(self, s: Any, request: Request, body: Any, group_id: str) -> Any:
        if not self._service.serves_streams:
            return s.DescribedGroup(group_id=group_id, error_code=ErrorCode.unsupported_version)
        try:
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            _, hosted = self._service.find_named(group_id)
        except KafkaError as error:
            return s.DescribedGroup(group_id=group_id, error_code=error.code)
        group = None if hosted is None else hosted.streams
        if group is None:
            reason = "not found" if hosted is None else "is not a streams group"
            text = f"Group {group_id} {reason}."
            return s.DescribedGroup(group_id=group_id, error_code=ErrorCode.group_id_not_found, error_message=text)
        data = group.data
        if data.topology is not None and request.denied(
            Operation.DESCRIBE, ResourceType.TOPIC, check_topics(data.topology)
        ):
            code = ErrorCode.topic_authorization_failed
            return s.DescribedGroup(group_id=group_id, error_code=code, error_message=UNDESCRIBABLE)
        return s.DescribedGroup(
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=data.epoch,
            assignment_epoch=data.target_epoch,
            topology=_described_topology(s, group),
            topology_description_status=NOT_STORED if _wants_description(body) else NOT_REQUESTED,
            assignor_name=STICKY,
            members=tuple(_described_member(s, row, group) for row in data.members.values()),
            authorized_operations=authorized_operations(request, body, group_id, ErrorCode.none),
        )

    # ---- StreamsGroupTopologyDescriptionUpdate -----------------------------------------------------

    def streams_group_topology_description_update(self, request: Request) -> None:
        """StreamsGroupTopologyDescriptionUpdate v0: refused, because there is no plugin."""
        body = request.decode()
        s = messages.response(request)
        code, text = ErrorCode.unsupported_version, None
        if self._service.serves_streams:
            try:
                request.require(Operation.READ, ResourceType.GROUP, body.group_id)
                text = NO_PLUGIN
            except KafkaError as error:
                code = error.code
        request.respond(s.StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=text))


# ---- requests ------------------------------------------------------------------------------------


def _request_of(request: Request) -> HeartbeatRequest:
    body = request.decode()
    kinds = (body.active_tasks, body.standby_tasks, body.warmup_tasks)
    given = [rows for rows in kinds if rows is not None]
    owned = None if not given else TaskSets(*(_tasks_of(rows) for rows in kinds))
    tags, endpoint = body.client_tags, body.user_endpoint
    return HeartbeatRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        endpoint_epoch=body.endpoint_information_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=request.client_id,
        client_host=f"/{request.peer.address}",
        rebalance_timeout_ms=messages.to_milliseconds(body.rebalance_timeout),
        topology=None if body.topology is None else _topology_of(body.topology),
        owned=owned,
        null_kinds=tuple(
            name
            for name, rows in zip(("ActiveTasks", "StandbyTasks", "WarmupTasks"), kinds, strict=True)
            if rows is None
        ),
        process_id=body.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple(sorted((tag.key, tag.value) for tag in tags)),
        offsets=TaskOffsets(_offsets_of(body.task_offsets), _offsets_of(body.task_end_offsets)),
        shutdown=body.shutdown_application,
        version=request.version,
    )


def _offsets_of(rows: Iterable[Any] | None) -> tuple[tuple[str, int, int], ...] | None:
    return None if rows is None else tuple((row.subtopology_id, row.partition, row.offset) for row in rows)


def _wants_description(body: Any) -> bool:
    return bool(getattr(body, "include_topology_description", False))


def _tasks_of(rows: Iterable[Any] | None) -> Tasks:
    return frozenset(TaskId(row.subtopology_id, number) for row in rows or () for number in row.partitions)


def _topology_of(body: Any) -> Topology:
    return topology(
        body.epoch,
        [
            Subtopology(
                subtopology_id=row.subtopology_id,
                source_topics=tuple(row.source_topics),
                source_regexes=tuple(row.source_topic_regex),
                changelogs=_topics_of(row.state_changelog_topics),
                repartition_sinks=tuple(row.repartition_sink_topics),
                repartition_sources=_topics_of(row.repartition_source_topics),
                copartition_groups=tuple(
                    CopartitionGroup(
                        tuple(group.source_topics),
                        tuple(group.source_topic_regex),
                        tuple(group.repartition_source_topics),
                    )
                    for group in row.copartition_groups
                ),
            )
            for row in body.subtopologies
        ],
    )


def _topics_of(rows: Iterable[Any]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            row.name,
            row.partitions,
            row.replication_factor,
            tuple((config.key, config.value) for config in row.topic_configs),
        )
        for row in rows
    )


# ---- responses -----------------------------------------------------------------------------------


def _response(s: Any, result: HeartbeatResult, statuses: Iterable[Status]) -> Any:
    held = result.assigned
    return s.StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.none,
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval=messages.milliseconds(result.interval_ms),
        task_offset_interval=messages.milliseconds(result.offsets_ms),
        acceptable_recovery_lag=result.acceptable_lag if s.version >= LAG_FROM else 0,
        status=tuple(s.Status(status_code=int(row.code), status_detail=row.detail) for row in statuses),
        active_tasks=None if held is None else _rows(s, held.active),
        standby_tasks=None if held is None else _rows(s, held.standby),
        warmup_tasks=None if held is None else _rows(s, held.warmup),
        endpoint_information_epoch=result.endpoint_epoch,
        partitions_by_user_endpoint=None
        if result.endpoints is None
        else tuple(
            s.EndpointToPartitions(
                user_endpoint=s.Endpoint(host=row.endpoint.host, port=row.endpoint.port),
                active_partitions=_partitions(s, row.active),
                standby_partitions=_partitions(s, row.standby),
            )
            for row in result.endpoints
        ),
    )


def _rows(s: Any, tasks: Iterable[TaskId]) -> tuple[Any, ...]:
    return tuple(
        s.TaskIds(subtopology_id=name, partitions=tuple(partitions)) for name, partitions in by_subtopology(tasks)
    )


def _partitions(s: Any, topics: Iterable[tuple[str, tuple[int, ...]]]) -> tuple[Any, ...]:
    return tuple(s.TopicPartition(topic=topic, partitions=partitions) for topic, partitions in topics)


def _with_detail(statuses: list[Status], more: str) -> list[Status]:
    """The statuses, where MISSING_INTERNAL_TOPICS says more."""
    missing = StatusCode.MISSING_INTERNAL_TOPICS
    return [row._replace(detail=row.detail + more) if row.code is missing else row for row in statuses]


def _described_topology(s: Any, group: StreamsGroup) -> Any:
    """The topology with its numbers of partitions where they are known, else as its application sent it."""
    stored, configured = group.data.topology, group.known.configured
    if stored is None:
        return None
    ready = configured if configured is not None and configured.is_ready else None
    rows = tuple(_described_subtopology(s, row, ready) for row in stored.subtopologies)
    return s.Topology(epoch=stored.epoch, subtopologies=rows)


def _described_subtopology(s: Any, row: Subtopology, ready: ConfiguredTopology | None) -> Any:
    known = None if ready is None or ready.subtopologies is None else ready.subtopologies[row.subtopology_id]
    sources = row.repartition_sources if known is None else known.repartition_sources
    return s.Subtopology(
        subtopology_id=row.subtopology_id,
        source_topics=tuple(sorted(row.source_topics)),
        repartition_sink_topics=tuple(sorted(row.repartition_sinks)),
        repartition_source_topics=_topic_infos(s, sources),
        state_changelog_topics=_topic_infos(s, row.changelogs if known is None else known.changelogs),
    )


def _topic_infos(s: Any, topics: Iterable[TopicInfo]) -> tuple[Any, ...]:
    return tuple(
        s.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=tuple(s.KeyValue(key=key, value=value) for key, value in topic.configs),
        )
        for topic in sorted(topics)
    )


def _described_member(s: Any, member: StreamsMember, group: StreamsGroup) -> Any:
    metadata, held = member.metadata, member.current.assigned
    target = group.data.target(member.member_id)
    endpoint = metadata.endpoint
    offsets = group.known.offsets.get(member.member_id, NO_OFFSETS)
    return s.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        topology_epoch=metadata.topology_epoch,
        process_id=metadata.process_id,
        user_endpoint=None if endpoint is None else s.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=tuple(s.KeyValue(key=key, value=value) for key, value in metadata.client_tags),
        task_offsets=_task_offsets(s, offsets.current),
        task_end_offsets=_task_offsets(s, offsets.ends),
        assignment=_assignment(s, held.active, held.standby, held.warmup),
        target_assignment=_assignment(s, target.active, target.standby, target.warmup),
        is_classic=False,
    )


def _task_offsets(s: Any, rows: Iterable[tuple[str, int, int]] | None) -> tuple[Any, ...]:
    return tuple(
        s.TaskOffset(subtopology_id=name, partition=partition, offset=offset) for name, partition, offset in rows or ()
    )


def _assignment(s: Any, active: Iterable[TaskId], standby: Iterable[TaskId], warmup: Iterable[TaskId]) -> Any:
    return s.Assignment(active_tasks=_rows(s, active), standby_tasks=_rows(s, standby), warmup_tasks=_rows(s, warmup))
