"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: requests, and their responses.

Owns: the translation between the protocol and the operations of `ConsumerGroup`. The response to a heartbeat that
changed the group leaves once its records are in the log. May fail: KafkaError only, which becomes the error of the
response, with its message.

Source: Kafka's GroupCoordinatorService.consumerGroupHeartbeat, ConsumerGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..wire import messages
from ..wire.request import denial
from .assignment_rows import UNDESCRIBABLE, rows_by_id, rows_with_names
from .authorized_operations import authorized_operations
from .consumer.consumer_group import ConsumerGroup
from .consumer.conversions import check_upgrade
from .consumer.group_records import CurrentRecord
from .consumer.group_state import Draft, GroupData
from .consumer.heartbeats import (
    HeartbeatRequest,
    HeartbeatResult,
    check_request,
    heartbeat,
    leave_for_restart,
    leaving_member,
    left,
    remove_members,
)
from .consumer.members import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, Partitions, by_topic_id
from .consumer.subscriptions import TopicView
from .consumer.target_assignments import assignor_name
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .service import GroupService

if TYPE_CHECKING:
    from ..wire.request import Request

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""`MemberType` of ConsumerGroupDescribe."""


class ConsumerApi:
    """Handlers of the requests of KIP-848."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    # ---- ConsumerGroupHeartbeat --------------------------------------------------------------------

    def consumer_group_heartbeat(self, request: Request) -> None:
        """ConsumerGroupHeartbeat v0 and v1."""
        asked = self._request_of(request)
        s = messages.response(request)

        def reply(result: HeartbeatResult) -> None:
            request.respond(
                s.ConsumerGroupHeartbeatResponse(
                    error_code=ErrorCode.none,
                    member_id=result.member_id,
                    member_epoch=result.epoch,
                    heartbeat_interval=messages.milliseconds(result.interval_ms),
                    assignment=None
                    if result.assigned is None
                    else s.Assignment(topic_partitions=rows_by_id(s, result.assigned)),
                )
            )

        def refuse(error: KafkaError) -> None:
            request.respond(
                s.ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
            )

        if not self._service.serves_consumers:
            refuse(KafkaError(ErrorCode.unsupported_version))
            return
        try:
            request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
            if request.denied(Operation.DESCRIBE, ResourceType.TOPIC, asked.topics or ()):
                raise denial(ResourceType.TOPIC)
            check_request(asked, self._service.consumer_rules.limits.assignors)
            shard, hosted = self._group_of(asked)
        except KafkaError as error:
            refuse(error)
            return
        self._submit(shard, hosted, asked, reply, refuse)

    def _request_of(self, request: Request) -> HeartbeatRequest:
        body = request.decode()
        member_id = body.member_id
        if not member_id and request.version == 0 and body.member_epoch == JOIN_EPOCH:
            member_id = self._service.new_member_id()
        topics, owned = body.subscribed_topic_names, body.topic_partitions
        return HeartbeatRequest(
            version=request.version,
            group_id=body.group_id,
            member_id=member_id,
            epoch=body.member_epoch,
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            client_id=request.client_id,
            client_host=f"/{request.peer.address}",
            rebalance_timeout_ms=messages.to_milliseconds(body.rebalance_timeout),
            topics=None if topics is None else tuple(topics),
            regex=getattr(body, "subscribed_topic_regex", None),
            assignor=body.server_assignor,
            denied_topics=None
            if request.unrestricted
            else partial(request.denied, Operation.DESCRIBE, ResourceType.TOPIC),
            owned=None
            if owned is None
            else by_topic_id((row.topic_id, number) for row in owned for number in row.partitions),
        )

    def _group_of(self, asked: HeartbeatRequest) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(asked.group_id)
        if hosted is None:
            if asked.epoch != JOIN_EPOCH:
                text = f"Consumer group {asked.group_id} not found."
                raise KafkaError(ErrorCode.group_id_not_found, text)
            hosted = shard.create(asked.group_id)
        if hosted.consumer is not None:
            return shard, hosted
        if asked.epoch != JOIN_EPOCH or not hosted.is_classic:
            text = f"Group {asked.group_id} is not a consumer group."
            raise KafkaError(ErrorCode.group_id_not_found, text)
        if hosted.group.members:
            check_upgrade(hosted.group, self._service.consumer_rules.limits)
        return shard, hosted

    def _submit(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        asked: HeartbeatRequest,
        reply: Callable[[HeartbeatResult], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        hosting = shard.consumer_hosting
        group = hosted.consumer or hosting.begin(hosted)

        def plan(draft: Draft) -> Callable[[], None]:
            group.denied_topics = asked.denied_topics
            if asked.epoch < JOIN_EPOCH:
                return partial(reply, _leave(draft, group, asked, shard))
            hosting.convert(hosted, group, draft)
            version = self._service.topics_version
            changed = group.topics_version != version
            result = heartbeat(draft, asked, group.rules, topics_changed=changed)
            moved = any(isinstance(record, CurrentRecord) for record in draft.records)
            return partial(heard, result, version, moved=moved)

        def heard(result: HeartbeatResult, version: int, *, moved: bool) -> None:
            group.topics_version = version
            member = group.data.members.get(result.member_id)
            if member is not None:
                group.member_heard(member)
                if moved:
                    group.watch_revocation(member)
            reply(result)

        def refused(error: KafkaError) -> None:
            hosting.abandon(hosted, group)
            shard.discard_if_idle(hosted)
            refuse(error)

        group.submit(plan, refused)

    # ---- ConsumerGroupDescribe ---------------------------------------------------------------------

    def consumer_group_describe(self, request: Request) -> None:
        """ConsumerGroupDescribe v0 and v1."""
        body = request.decode()
        s = messages.response(request)
        groups = tuple(self._described(s, request, body, group_id) for group_id in body.group_ids)
        request.respond(s.ConsumerGroupDescribeResponse(groups=groups))

    def _described(self, s: Any, request: Request, body: Any, group_id: str) -> Any:
        if not self._service.serves_consumers:
            return s.DescribedGroup(group_id=group_id, error_code=ErrorCode.unsupported_version)
        try:
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            _, hosted = self._service.find_named(group_id)
        except KafkaError as error:
            return s.DescribedGroup(group_id=group_id, error_code=error.code)
        group = None if hosted is None else hosted.consumer
        if group is None:
            is_classic = hosted is not None
            text = f"Group {group_id} {'is not a consumer group' if is_classic else 'not found'}."
            return s.DescribedGroup(group_id=group_id, error_code=ErrorCode.group_id_not_found, error_message=text)
        data, view = group.data, self._service.consumer_rules.view
        if request.denied(Operation.DESCRIBE, ResourceType.TOPIC, _assigned_topics(data, view)):
            code = ErrorCode.topic_authorization_failed
            return s.DescribedGroup(group_id=group_id, error_code=code, error_message=UNDESCRIBABLE)
        return s.DescribedGroup(
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=data.epoch,
            assignment_epoch=data.target_epoch,
            assignor_name=assignor_name(data, group.rules.limits),
            members=tuple(
                _described_member(s, member, data.target(member.member_id), view) for member in data.members.values()
            ),
            authorized_operations=authorized_operations(request, body, group_id, ErrorCode.none),
        )


def _leave(draft: Draft, group: ConsumerGroup, asked: HeartbeatRequest, shard: GroupShard) -> HeartbeatResult:
    member = leaving_member(draft.state, asked)
    if asked.epoch == LEAVE_STATIC_EPOCH:
        return leave_for_restart(draft, member)
    remove_members(draft, [member.member_id], group.rules)
    shard.consumer_hosting.downgrade(group, draft, rebalance=True)
    return left(member.member_id)


def _described_member(s: Any, member: ConsumerMember, target: Partitions, view: TopicView) -> Any:
    metadata = member.metadata
    return s.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.topics,
        subscribed_topic_regex=metadata.regex or "",
        assignment=s.Assignment(topic_partitions=rows_with_names(s, by_topic_id(member.held()), view)),
        target_assignment=s.Assignment(topic_partitions=rows_with_names(s, target, view)),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assigned_topics(data: GroupData, view: TopicView) -> Iterable[str]:
    """The topics that members have, or shall have."""
    for member in data.members.values():
        for topic_id in (*member.current.assigned, *member.current.revoking, *data.target(member.member_id)):
            name = view.topic_name(topic_id)
            if name is not None:
                yield name
