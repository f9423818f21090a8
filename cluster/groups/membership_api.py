"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: requests for a group's state machine, and its responses.

Owns: the translation between the protocol's versions and `membership.Group`, and the validation that Kafka does before
it looks up a group. May fail: KafkaError only, which becomes the error of the response.

Source: Kafka's GroupCoordinatorService and the classicGroup… methods of GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..wire import messages
from .consumer import membership_of_classic as classic_membership
from .consumer.membership_of_classic import LeavingMember, LeftMember
from .group_shard import GroupShard
from .hosted_group import HostedGroup
from .membership_values import NO_MEMBER, JoinRequest, JoinResult, Protocol, SyncRequest, SyncResult
from .service import GroupService

if TYPE_CHECKING:
    from ..wire.request import Request

MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9
REBALANCE_TIMEOUT_FROM = 1
BATCHED_LEAVE_FROM = 3
NULL_PROTOCOL_NAME_FROM = 7
NAMED_PROTOCOL_FROM = 5
"""First version of SyncGroup in which a member must name the group's protocol type and protocol (KIP-559)."""


class MembershipApi:
    """Handlers of the membership requests."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    def join_group(self, request: Request) -> None:
        """JoinGroup v0 to v9."""
        body = _authorized(request)

        def reply(result: JoinResult) -> None:
            request.respond(_join_response(request, result))

        try:
            self._check_join(body.group_id, messages.to_milliseconds(body.session_timeout))
            shard, hosted = self._group_to_join(body)
        except KafkaError as error:
            reply(JoinResult(error=error.code, member_id=body.member_id))
            return
        join = self._join_request(request, body, reply)
        if hosted.consumer is not None:
            join = replace(join, new_member_id=self._service.new_member_id())
            version = self._service.topics_version
            classic_membership.join(hosted.consumer, join, shard.consumer_hosting, version, reply)
            return
        now_ms = self._service.host.clock.monotonic_ms()
        shard.run(hosted, hosted.group.join(join, now_ms))
        shard.discard_if_idle(hosted)

    def sync_group(self, request: Request) -> None:
        """SyncGroup v0 to v5."""
        body = _authorized(request)

        def reply(result: SyncResult) -> None:
            request.respond(_sync_response(request, result))

        try:
            _check_protocol_is_named(request.version, body)
            shard, hosted = self._known_group(body.group_id)
        except KafkaError as error:
            reply(SyncResult(error=_rebalance_if_loading(error.code)))
            return
        sync = SyncRequest(
            token=reply,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
            generation=body.generation_id,
            protocol_type=getattr(body, "protocol_type", None),
            protocol_name=getattr(body, "protocol_name", None),
            assignments={row.member_id: bytes(row.assignment) for row in body.assignments},
        )
        if hosted.consumer is not None:
            classic_membership.sync(hosted.consumer, sync, reply)
            return
        now_ms = self._service.host.clock.monotonic_ms()
        shard.run(hosted, hosted.group.sync(sync, now_ms))

    def heartbeat(self, request: Request) -> None:
        """Heartbeat v0 to v4."""
        body = _authorized(request)
        self._heartbeat(
            body, lambda code: request.respond(messages.response(request).HeartbeatResponse(error_code=code))
        )

    def leave_group(self, request: Request) -> None:
        """LeaveGroup v0 to v5; from v3 on several members at once, each with its own error."""
        body = _authorized(request)
        s = messages.response(request)
        batched = request.version >= BATCHED_LEAVE_FROM
        leaving: list[LeavingMember] = (
            [(member.member_id, member.group_instance_id) for member in body.members]
            if batched
            else [(body.member_id, None)]
        )

        def reply(left: Sequence[LeftMember]) -> None:
            if not batched:
                request.respond(s.LeaveGroupResponse(error_code=left[0][2]))
                return
            rows = tuple(
                s.MemberResponse(member_id=name, group_instance_id=instance, error_code=code)
                for name, instance, code in left
            )
            request.respond(s.LeaveGroupResponse(error_code=ErrorCode.none, members=rows))

        try:
            shard, hosted = self._service.find_named(body.group_id)
        except KafkaError as error:
            request.respond(s.LeaveGroupResponse(error_code=error.code, members=()))
            return
        if hosted is not None and hosted.consumer is not None:
            hosting = shard.consumer_hosting
            classic_membership.leave(hosted.consumer, leaving, hosting, reply)
        else:
            reply([(*member, self._leave(shard, hosted, *member)) for member in leaving])

    # ---- parts -----------------------------------------------------------------------------------

    def _check_join(self, group_id: str, session_timeout_ms: int) -> None:
        if not group_id:
            raise KafkaError(ErrorCode.invalid_group_id)
        config = self._service.config
        low = config.number("group.min.session.timeout.ms")
        high = config.number("group.max.session.timeout.ms")
        if not low <= session_timeout_ms <= high:
            raise KafkaError(
                ErrorCode.invalid_session_timeout, f"session timeout {session_timeout_ms} ms: expected {low} to {high}"
            )

    def _group_to_join(self, body: Any) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(body.group_id)
        if hosted is None:
            if body.member_id != NO_MEMBER:
                raise KafkaError(ErrorCode.unknown_member_id)
            hosted = shard.create(body.group_id)
        if hosted.share is not None:
            raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if hosted.consumer is not None and hosted.is_empty:
            if body.member_id != NO_MEMBER:
                raise KafkaError(ErrorCode.unknown_member_id)
            shard.consumer_hosting.remove_empty(hosted)
        if hosted.streams is not None:
            if not hosted.is_empty:
                raise KafkaError(ErrorCode.inconsistent_group_protocol)
            if body.member_id != NO_MEMBER:
                raise KafkaError(ErrorCode.unknown_member_id)
            shard.streams_hosting.remove_empty(hosted)
        return shard, hosted

    def _known_group(self, group_id: str) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find_named(group_id)
        if hosted is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        return shard, hosted

    def _join_request(self, request: Request, body: Any, reply: object) -> JoinRequest:
        session_ms = messages.to_milliseconds(body.session_timeout)
        rebalance_ms = session_ms
        if request.version >= REBALANCE_TIMEOUT_FROM:
            rebalance_ms = messages.to_milliseconds(body.rebalance_timeout)
        instance = getattr(body, "group_instance_id", None)
        return JoinRequest(
            token=reply,
            member_id=body.member_id,
            new_member_id=f"{request.client_id if instance is None else instance}-{self._service.new_uuid()}",
            group_instance_id=instance,
            client_id=request.client_id,
            client_host=f"/{request.peer.address}",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=body.protocol_type,
            protocols=tuple(Protocol(row.name, bytes(row.metadata)) for row in body.protocols),
            member_id_required=request.version >= MEMBER_ID_REQUIRED_FROM,
            can_skip_assignment=request.version >= SKIP_ASSIGNMENT_FROM,
        )

    def _heartbeat(self, body: Any, reply: Callable[[ErrorCode], None]) -> None:
        try:
            shard, hosted = self._service.find_named(body.group_id)
        except KafkaError as error:
            # As in Kafka: while the group loads, its members must neither fail nor join again.
            loading = error.code is ErrorCode.coordinator_load_in_progress
            reply(ErrorCode.none if loading else error.code)
            return
        if hosted is None:
            reply(ErrorCode.unknown_member_id)
            return
        instance = getattr(body, "group_instance_id", None)
        if hosted.consumer is not None:
            member_id, generation = body.member_id, body.generation_id
            classic_membership.heartbeat(hosted.consumer, member_id, instance, generation, reply)
            return
        now_ms = self._service.host.clock.monotonic_ms()
        code = hosted.group.heartbeat(body.member_id, instance, body.generation_id, now_ms)
        shard.heartbeat_received(hosted, body.member_id)
        reply(code)

    def _leave(self, shard: GroupShard, hosted: HostedGroup | None, member_id: str, instance: str | None) -> ErrorCode:
        if hosted is None:
            return ErrorCode.unknown_member_id
        now_ms = self._service.host.clock.monotonic_ms()
        code, effects = hosted.group.leave(member_id, instance, now_ms)
        shard.run(hosted, effects)
        return code


def _authorized(request: Request) -> Any:
    """The body of a request of a member; KafkaError(group_authorization_failed)."""
    body = request.decode()
    request.require(Operation.READ, ResourceType.GROUP, body.group_id)
    return body


def _check_protocol_is_named(version: int, body: Any) -> None:
    is_named = version < NAMED_PROTOCOL_FROM or None not in (body.protocol_type, body.protocol_name)
    if not is_named:
        raise KafkaError(ErrorCode.inconsistent_group_protocol)


def _rebalance_if_loading(code: ErrorCode) -> ErrorCode:
    """As in Kafka: a member whose SyncGroup arrives while the group loads joins again."""
    loading = code is ErrorCode.coordinator_load_in_progress
    return ErrorCode.rebalance_in_progress if loading else code


def _join_response(request: Request, result: JoinResult) -> Any:
    s = messages.response(request)
    # as in Kafka: no name is null where the version knows null, and else empty
    name = result.protocol_name or (None if request.version >= NULL_PROTOCOL_NAME_FROM else "")
    return s.JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            s.JoinGroupResponseMember(
                member_id=row.member_id, group_instance_id=row.group_instance_id, metadata=row.metadata
            )
            for row in result.members
        ),
    )


def _sync_response(request: Request, result: SyncResult) -> Any:
    return messages.response(request).SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
