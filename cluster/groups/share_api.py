"""ShareGroupHeartbeat and ShareGroupDescribe: requests, and their responses.

Owns: the translation between the protocol and the operations of `ShareGroup`. The response to a heartbeat that changed
the group leaves once its records are in the log; the persister then initializes share-partitions, which a later
heartbeat assigns. May fail: KafkaError only, which becomes the error of the response, with its message.

Source: Kafka's KafkaApis.handleShareGroupHeartbeat and …Describe, GroupCoordinatorService.shareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..ids import NO_OFFSET
from ..wire import messages
from ..wire.request import denial
from .assignment_rows import UNDESCRIBABLE, rows_by_id, rows_with_names
from .authorized_operations import authorized_operations
from .consumer.members import each
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .service import GroupService
from .share.heartbeats import (
    ShareHeartbeat,
    ShareHeartbeatResult,
    begin_initialization,
    check_member_id,
    check_request,
    heartbeat,
    leave,
)
from .share.initialization import partitions_of
from .share.limits import ASSIGNOR
from .share.members import JOIN_EPOCH, ShareMember, Topics
from .share.share_group import ShareGroup
from .share.share_state import ShareDraft
from .share_hosting import Errors, initial_offsets

if TYPE_CHECKING:
    from ..wire.request import Request


class ShareApi:
    """Handlers of the requests of members of share groups."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    # ---- ShareGroupHeartbeat -----------------------------------------------------------------------

    def share_group_heartbeat(self, request: Request) -> None:
        """ShareGroupHeartbeat v1."""
        body = request.decode()
        s = messages.response(request)

        def reply(result: ShareHeartbeatResult) -> None:
            request.respond(
                s.ShareGroupHeartbeatResponse(
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
            request.respond(s.ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None))

        asked = ShareHeartbeat(
            group_id=body.group_id,
            member_id=body.member_id,
            epoch=body.member_epoch,
            rack_id=body.rack_id,
            client_id=request.client_id,
            client_host=f"/{request.peer.address}",
            topics=None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        )
        try:
            self._check_sender(request, asked)
        except KafkaError as error:
            refuse(KafkaError(error.code))  # without a message, as in Kafka
            return
        try:
            check_request(asked)
            shard, hosted = self._group_of(asked)
        except KafkaError as error:
            refuse(error)
            return
        self._submit(shard, hosted, asked, reply, refuse)

    def _check_sender(self, request: Request, asked: ShareHeartbeat) -> None:
        self._check_served()
        request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
        check_member_id(asked.member_id)
        if request.denied(Operation.DESCRIBE, ResourceType.TOPIC, asked.topics or ()):
            raise denial(ResourceType.TOPIC)

    def _check_served(self) -> None:
        if self._service.persister is None:
            raise KafkaError(ErrorCode.unsupported_version)

    def _group_of(self, asked: ShareHeartbeat) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(asked.group_id)
        if hosted is None:
            if asked.epoch != JOIN_EPOCH:
                kind = "Group" if asked.epoch < JOIN_EPOCH else "Share group"
                raise KafkaError(ErrorCode.group_id_not_found, f"{kind} {asked.group_id} not found.")
            hosted = shard.create(asked.group_id)
            shard.share_hosting.begin(hosted)
        if hosted.share is None:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {asked.group_id} is not a share group.")
        return shard, hosted

    def _submit(
        self,
        shard: GroupShard,
        hosted: HostedGroup,
        asked: ShareHeartbeat,
        reply: Callable[[ShareHeartbeatResult], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        hosting, group = shard.share_hosting, hosted.share
        assert group is not None, f"{hosted.group_id} is a share group"

        def plan(draft: ShareDraft) -> Callable[[], None]:
            if asked.epoch < JOIN_EPOCH:
                return partial(reply, leave(draft, asked, group.rules.view))
            version = self._service.topics_version
            result = heartbeat(draft, asked, group.rules, topics_changed=group.topics_version != version)
            topics = begin_initialization(draft, group.rules.view, retry=group.retries_initialization)
            return partial(heard, result, version, topics, draft.state.epoch)

        def heard(result: ShareHeartbeatResult, version: int, topics: Topics, state_epoch: int) -> None:
            group.topics_version = version
            group.member_heard(result.member_id)
            reply(result)
            if topics:
                offsets = initial_offsets(each(partitions_of(topics)), NO_OFFSET)
                hosting.initialize(group, offsets, state_epoch, initialized)

        def initialized(errors: Errors) -> None:
            for error in list(errors.values())[:1]:
                text = f"share group {asked.group_id}: {len(errors)} partitions were not initialized: {error.code.name}"
                self._service.host.trace.log("warning", text)

        def refused(error: KafkaError) -> None:
            hosting.abandon(hosted, group)
            shard.discard_if_idle(hosted)
            refuse(error)

        group.submit(plan, refused)

    # ---- ShareGroupDescribe ------------------------------------------------------------------------

    def share_group_describe(self, request: Request) -> None:
        """ShareGroupDescribe v1."""
        body = request.decode()
        s = messages.response(request)
        groups = tuple(self._described(s, request, body, group_id) for group_id in body.group_ids)
        request.respond(s.ShareGroupDescribeResponse(groups=groups))

    def _described(self, s: Any, request: Request, body: Any, group_id: str) -> Any:
        try:
            self._check_served()
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            group = share_group(self._service.find_named(group_id)[1], group_id)
        except KafkaError as error:
            message = error.message if error.code is ErrorCode.group_id_not_found else None
            return _described(s, group_id=group_id, error_code=error.code, error_message=message)
        data, view = group.data, group.rules.view
        members = tuple(self._member(s, member) for member in data.members.values())
        topics = {view.topic_name(topic_id) for row in data.members.values() for topic_id in row.current.assigned}
        if request.denied(Operation.DESCRIBE, ResourceType.TOPIC, sorted(name for name in topics if name is not None)):
            code = ErrorCode.topic_authorization_failed
            return _described(s, group_id=group_id, error_code=code, error_message=UNDESCRIBABLE)
        return _described(
            s,
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=data.epoch,
            assignment_epoch=data.target_epoch,
            assignor_name=ASSIGNOR,
            members=members,
            authorized_operations=authorized_operations(request, body, group_id, ErrorCode.none),
        )

    def _member(self, s: Any, member: ShareMember) -> Any:
        view, metadata = self._service.share_rules.view, member.metadata
        return s.Member(
            member_id=member.member_id,
            rack_id=metadata.rack_id,
            member_epoch=member.epoch,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
            subscribed_topic_names=metadata.topics,
            assignment=s.Assignment(topic_partitions=rows_with_names(s, member.current.assigned, view)),
        )


def _described(s: Any, **fields: Any) -> Any:
    defaults = {"group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": ()}
    return s.DescribedGroup(**{**defaults, **fields})


def share_group(hosted: HostedGroup | None, group_id: str) -> ShareGroup:
    """The share group; GROUP_ID_NOT_FOUND."""
    if hosted is None:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if hosted.share is None:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
    return hosted.share
