"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup for a group that is a consumer group.

Owns: the operations of classic members on `ConsumerGroup`: which deadlines they begin and end, and when the group
becomes a classic group again.

Source: Kafka's GroupMetadataManager, the methods classicGroup…ToConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...errors import ErrorCode, KafkaError
from ..membership_values import NO_MEMBER, JoinRequest, JoinResult, SyncRequest, SyncResult
from . import classic_members
from .consumer_group import ConsumerGroup, Deadline, GroupSurroundings
from .group_state import Draft
from .heartbeats import remove_members
from .members import JOIN_EPOCH

LeavingMember = tuple[str, str | None]
"""Member id, group instance id."""
LeftMember = tuple[str, str | None, ErrorCode]


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    surroundings: GroupSurroundings,
    topics_version: int,
    reply: Callable[[JoinResult], None],
) -> None:
    """JoinGroup."""

    def plan(draft: Draft) -> Callable[[], None]:
        changed = group.topics_version != topics_version
        replaced = draft.state.static_member(request.group_instance_id)
        result = classic_members.join(draft, request, group.rules, topics_changed=changed)
        # as in Kafka: a dynamic member that changes its protocol leaves a consumer group of classic members
        if replaced is None or replaced.is_classic:
            return partial(joined, result, stays=result.error is ErrorCode.none)
        resubscribed = group.data.target_epoch < draft.state.epoch
        downgraded = surroundings.downgrade(group, draft, rebalance=resubscribed)
        if downgraded and resubscribed:  # the member joins again, for the rebalance
            same = replaced.member_id == result.member_id
            result = replace(result, generation=replaced.epoch if same else JOIN_EPOCH)
        return partial(joined, result, stays=not downgraded)

    def joined(result: JoinResult, *, stays: bool) -> None:
        member = group.data.members.get(result.member_id)
        if stays and member is not None:
            group.topics_version = topics_version
            group.clear_deadline(Deadline.JOIN, member.member_id)
            group.clear_deadline(Deadline.REBALANCE, member.member_id)
            group.member_heard(member)
            group.set_deadline(Deadline.SYNC, member.member_id, request.rebalance_timeout_ms)
        reply(result)

    group.submit(plan, lambda error: reply(JoinResult(error=error.code)))


def sync(group: ConsumerGroup, request: SyncRequest, reply: Callable[[SyncResult], None]) -> None:
    """SyncGroup."""

    def plan(draft: Draft) -> Callable[[], None]:
        try:
            result = classic_members.sync(draft.state, request, group.rules, group.group_id)
        except KafkaError as error:
            if error.code is ErrorCode.rebalance_in_progress:
                _must_join(group, draft, request.member_id)
            raise
        _heard(group, draft, request.member_id, request.group_instance_id)
        group.clear_deadline(Deadline.SYNC, request.member_id)
        return partial(reply, result)

    group.submit(plan, lambda error: reply(SyncResult(error=error.code)))


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, reply: Callable[[ErrorCode], None]
) -> None:
    """Heartbeat."""

    def plan(draft: Draft) -> Callable[[], None]:
        code = classic_members.heartbeat(draft.state, group.group_id, member_id, instance_id, generation)
        _heard(group, draft, member_id, instance_id)
        if code is not ErrorCode.none:
            _must_join(group, draft, member_id)
        return partial(reply, code)

    group.submit(plan, lambda error: reply(error.code))


def leave(
    group: ConsumerGroup,
    leaving: Sequence[LeavingMember],
    surroundings: GroupSurroundings,
    reply: Callable[[Sequence[LeftMember]], None],
) -> None:
    """LeaveGroup; each member has its own error."""

    def plan(draft: Draft) -> Callable[[], None]:
        left: dict[str, None] = {}
        rows: list[LeftMember] = []
        for member_id, instance_id in leaving:
            try:
                member = classic_members.leaving_member(draft.state, group.group_id, member_id, instance_id)
            except KafkaError as error:
                rows.append((member_id, instance_id, error.code))
            else:
                left[member.member_id] = None
                rows.append((member_id, instance_id, ErrorCode.none))
        if left:
            remove_members(draft, list(left), group.rules)
            surroundings.downgrade(group, draft, rebalance=True)
        return partial(reply, rows)

    def refuse(error: KafkaError) -> None:
        reply([(member_id, instance_id, error.code) for member_id, instance_id in leaving])

    group.submit(plan, refuse)


def _must_join(group: ConsumerGroup, draft: Draft, member_id: str) -> None:
    if not group.has_deadline(Deadline.JOIN, member_id):
        timeout_ms = draft.state.members[member_id].metadata.rebalance_timeout_ms
        group.set_deadline(Deadline.JOIN, member_id, timeout_ms)


def _heard(group: ConsumerGroup, draft: Draft, member_id: str, instance_id: str | None) -> None:
    assert member_id != NO_MEMBER or instance_id is not None, "checked before"
    group.member_heard(classic_members.classic_member(draft.state, group.group_id, member_id, instance_id))
