"""Which member of a streams group sends a request, and what it changes about itself.

Owns: the checks of member ids, epochs and instance ids; how a static member returns. KafkaError is what the client
gets.

A static member, which has an instance id, keeps its tasks while it is away (member epoch -2) and its session lasts. It
returns under another member id and takes them over, without a new group epoch unless it has another process, rack,
topology or other tags.

Source: KIP-1071; Kafka's GroupMetadataManager (getOrMaybeCreateStaticStreamsGroupMember, replaceStreamsMember).
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import ErrorCode, KafkaError
from ..known_members import known_member, own_holder
from .group_records import CurrentRecord, MemberRecord, TargetRecord
from .group_state import Draft, StreamsData
from .members import JOIN_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember
from .requests import HeartbeatRequest
from .tasks import NOTHING


def leaving_member(state: StreamsData, request: HeartbeatRequest) -> StreamsMember:
    """The member that leaves; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if request.instance_id is None:
        return known_member(state.members, request.group_id, request.member_id)
    return own_holder(state.static_member(request.instance_id), request.member_id, request.instance_id)


def member_of(draft: Draft, request: HeartbeatRequest) -> StreamsMember:
    """The member as it was before this heartbeat; a new one has no tasks."""
    state, joins = draft.state, request.epoch == JOIN_EPOCH
    if joins:
        holder = state.static_member(request.instance_id)
        if holder is not None:
            return _replace(draft, holder, request)
        return state.members.get(request.member_id) or StreamsMember(member_id=request.member_id)
    member = leaving_member(state, request)
    _check_epoch(member, request)
    return member


def update_metadata(draft: Draft, member: StreamsMember, request: HeartbeatRequest) -> bool:
    """Store what a member says about itself; True when that needs another assignment."""
    old, new = member.metadata, request.applied_to(member.metadata)
    if new == old and member.member_id in draft.state.members:
        return False
    draft.add(MemberRecord(member.member_id, new))
    if request.instance_id is None:
        return True
    of_old, of_new = ((row.topology_epoch, row.rack_id, row.client_tags, row.process_id) for row in (old, new))
    return of_old != of_new


def _replace(draft: Draft, holder: StreamsMember, request: HeartbeatRequest) -> StreamsMember:
    """A static member returns: the new member takes over target and assigned tasks."""
    if holder.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {holder.member_id} member.",
        )
    target = draft.state.target(holder.member_id)
    draft.bury_member(holder.member_id)
    current = replace(holder.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.add(
        MemberRecord(request.member_id, holder.metadata),
        TargetRecord(request.member_id, target),
        CurrentRecord(request.member_id, current),
    )
    return draft.state.members[request.member_id]


def _check_epoch(member: StreamsMember, request: HeartbeatRequest) -> None:
    received, current = request.epoch, member.current
    if received == current.epoch:
        return
    # the response with the new epoch may have been lost
    retries = received == current.previous_epoch and request.owned is not None
    if received < current.epoch and retries and current.assigned.contains(request.owned or NOTHING):
        return
    than = "greater" if received > current.epoch else "smaller"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The streams group member has a {than} member epoch ({received}) than the one known by the group coordinator "
        f"({current.epoch}). The member must abandon all its partitions and rejoin.",
    )
