"""The rules of ShareGroupHeartbeat: what is refused, and which records follow.

Owns: pure functions on a `ShareDraft`. KafkaError is what the client gets; a refused request leaves no record.

A heartbeat of member epoch 0 joins, -1 leaves. The client makes the member id.

Source: KIP-932; Kafka's GroupMetadataManager.shareGroupHeartbeat, GroupCoordinatorService.shareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...errors import ErrorCode, KafkaError
from ...wire.topic_ids import UUID
from ..consumer.group_records import GroupEpoch
from ..consumer.members import Partitions, by_topic_id, each
from ..consumer.subscriptions import TopicView, metadata_hash, partition_counts
from ..consumer.target_assignments import assignment_time
from ..known_members import check_size, known_member
from .initialization import begin, uninitialized
from .limits import ShareRules
from .members import JOIN_EPOCH, LEAVE_EPOCH, ShareAssignment, ShareMember, ShareMetadata, Topics
from .share_records import (
    ShareCurrentRecord,
    ShareEpochRecord,
    ShareMemberRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StatePartitionsRecord,
)
from .share_state import ShareDraft, ShareGroupData
from .simple_assignor import ShareSubscriber, assign_simple

MEMBER_ID_LENGTH = 36
"""Longest member id, in UTF-16 code units as Java counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A ShareGroupHeartbeat; None: not changed since the last one."""

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None

    def applied_to(self, before: ShareMetadata) -> ShareMetadata:
        """What the member says about itself now."""
        return ShareMetadata(
            rack_id=before.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=before.topics if self.topics is None else tuple(sorted(set(self.topics))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatResult:
    """The response to a heartbeat that was accepted; `assigned` None: not changed."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Partitions | None = None


def check_member_id(member_id: str) -> None:
    """Refuse an id that no member has."""
    length = len(member_id.encode("utf-16-le")) // 2
    _require(0 < length <= MEMBER_ID_LENGTH, "Invalid member id in the request.")


def check_request(request: ShareHeartbeat) -> None:
    """Refuse what no group accepts."""
    _require(request.member_id.strip() != "", "MemberId can't be empty.")
    _require(request.group_id.strip() != "", "GroupId can't be empty.")
    _require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        _require(bool(request.topics), "SubscribedTopicNames must be set in first request.")
    _require(request.epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.invalid_request, message)


def heartbeat(
    draft: ShareDraft, request: ShareHeartbeat, rules: ShareRules, *, topics_changed: bool
) -> ShareHeartbeatResult:
    """A heartbeat that is no leave. `topics_changed`: the topics of the cluster may differ from the last time."""
    check_size("share", draft.state.members, rules.max_size, request.member_id)
    before = _member_of(draft.state, request)
    # a target assignment that is to be computed has those partitions, too
    pending = draft.state.target_epoch >= draft.state.epoch and assignment_pending(draft.state)
    bump = _store(draft, before, request.applied_to(before.metadata)) or pending
    bump = _update_epoch(draft, rules, bump=bump) if bump or topics_changed else False
    update_target(draft, rules, request.group_id)
    current = _advance(draft, request.member_id, rules.view, subscription_changed=bump)
    changed = current.assigned != before.current.assigned
    is_full = request.epoch == JOIN_EPOCH or request.topics is not None
    return ShareHeartbeatResult(
        member_id=request.member_id,
        epoch=current.epoch,
        interval_ms=rules.heartbeat_interval_ms(request.group_id),
        assigned=current.assigned if is_full or changed else None,
    )


def begin_initialization(draft: ShareDraft, view: TopicView, *, retry: bool) -> Topics:
    """The subscribed partitions that the persister is to initialize now."""
    state = draft.state
    topics = uninitialized(state.state_partitions(), state.topics(), view, retry=retry)
    if topics:
        draft.add(StatePartitionsRecord(begin(state.state_partitions(), topics)))
    return topics


def assignment_pending(state: ShareGroupData) -> bool:
    """True while an initialized partition of a subscribed topic is in no target assignment."""
    subscribed, given = state.topics(), _given(state)
    return any(
        row.name in subscribed and row.partitions != given.get(topic_id, frozenset())
        for topic_id, row in state.state_partitions().initialized.items()
    )


def _given(state: ShareGroupData) -> Partitions:
    return by_topic_id(partition for target in state.targets.values() for partition in each(target))


def remove_members(draft: ShareDraft, member_ids: Sequence[str], view: TopicView) -> None:
    """Members left or were fenced; the next heartbeat of another member computes a new assignment."""
    for member_id in member_ids:
        draft.remove_member(member_id)
        found = metadata_hash(partition_counts(draft.state.topics(), view))
        draft.add(ShareEpochRecord(GroupEpoch(draft.state.epoch + 1, found)))
    if not draft.state.members:
        draft.add(ShareTargetEpochRecord(draft.state.epoch))


def leave(draft: ShareDraft, request: ShareHeartbeat, view: TopicView) -> ShareHeartbeatResult:
    """A heartbeat of member epoch -1."""
    known_member(draft.state.members, request.group_id, request.member_id)
    remove_members(draft, [request.member_id], view)
    return ShareHeartbeatResult(member_id=request.member_id, epoch=LEAVE_EPOCH)


def _member_of(state: ShareGroupData, request: ShareHeartbeat) -> ShareMember:
    """The member as it was before this heartbeat."""
    if request.epoch == JOIN_EPOCH:
        return state.members.get(request.member_id) or ShareMember(member_id=request.member_id)
    member = known_member(state.members, request.group_id, request.member_id)
    received, known, previous = request.epoch, member.epoch, member.current.previous_epoch
    if received in (known, previous) and received <= known:
        return member  # the response with the new epoch may have been lost
    if received > known:
        text = (
            f"The share group member has a greater member epoch ({received}) than the one known by the group "
            f"coordinator ({known}). The member must abandon all its partitions and rejoin."
        )
    else:
        text = (
            f"The share group member has a smaller member epoch ({received}) than the one known by the group "
            f"coordinator ({known}), and it does not match the previous member epoch ({previous}). The member must "
            "abandon all its partitions and rejoin."
        )
    raise KafkaError(ErrorCode.fenced_member_epoch, text)


def _store(draft: ShareDraft, before: ShareMember, metadata: ShareMetadata) -> bool:
    """Store what a member says about itself; True when its subscription changed."""
    if before.member_id not in draft.state.members or before.metadata != metadata:
        draft.add(ShareMemberRecord(before.member_id, metadata))
    return before.metadata.topics != metadata.topics


def _update_epoch(draft: ShareDraft, rules: ShareRules, *, bump: bool) -> bool:
    """Raise the group epoch if `bump` or if a subscribed topic changed; returns whether it rose."""
    state = draft.state
    found = metadata_hash(partition_counts(state.topics(), rules.view))
    rises = bump or found != state.metadata_hash
    if rises:
        draft.add(ShareEpochRecord(GroupEpoch(state.epoch + 1, found)))
    return rises


def update_target(draft: ShareDraft, rules: ShareRules, group_id: str) -> None:
    """Compute the target assignment of the group epoch, unless there is one or the last one is too young."""
    state = draft.state
    if state.epoch <= state.target_epoch:
        return
    computed_ms = assignment_time(state.computed_ms, rules.assignment_interval_ms(group_id), rules.wall_ms)
    if computed_ms is None:
        return
    members = list(state.members.values())
    subscribers = [
        ShareSubscriber(member.member_id, _topic_ids(member, rules.view), state.target(member.member_id))
        for member in members
    ]
    same_topics = len({member.metadata.topics for member in members}) <= 1
    targets = assign_simple(subscribers, state.state_partitions().assignable(), same_topics=same_topics)
    for member_id, target in targets.items():
        if member_id not in state.targets or target != state.target(member_id):
            draft.add(ShareTargetRecord(member_id, target))
    draft.add(ShareTargetEpochRecord(state.epoch, computed_ms))


def _topic_ids(member: ShareMember, view: TopicView) -> frozenset[UUID]:
    return frozenset(partition_counts(member.metadata.topics, view))


def _advance(draft: ShareDraft, member_id: str, view: TopicView, *, subscription_changed: bool) -> ShareAssignment:
    """Move a member to its target assignment."""
    state = draft.state
    member = state.members[member_id]
    before = member.current
    if not subscription_changed and before.epoch == state.target_epoch:
        return before
    topics = _topic_ids(member, view)
    assigned = {topic_id: rows for topic_id, rows in state.target(member_id).items() if topic_id in topics}
    current = replace(before, assigned=assigned)
    if before.epoch != state.target_epoch:
        current = replace(current, epoch=state.target_epoch, previous_epoch=before.epoch, state=0)
    if current != before:
        draft.add(ShareCurrentRecord(member_id, current))
    return current
