"""The rules of ConsumerGroupHeartbeat: what is refused, and which records follow.

Owns: pure functions on a `Draft`. KafkaError is what the client gets; a refused request leaves no record.

A heartbeat of member epoch 0 joins, -1 leaves, -2 leaves for the restart of a static member.

Source: KIP-848, KIP-1082 (ids made by clients); Kafka's GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ...errors import ErrorCode, KafkaError
from ...regular_expressions import compile_regex
from ..known_members import check_size, known_member, own_holder
from .group_records import CurrentRecord, MemberRecord, TargetEpochRecord, TargetRecord
from .group_state import Draft, GroupData
from .members import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
    Partitions,
    each,
)
from .reconciliation import Subscribed, reconcile
from .subscriptions import REGEX_FIELD, TopicView, partition_counts, resolve, topics_of
from .target_assignments import FIRST_EPOCH, NEW_EPOCH, ConsumerRules, assignor_name, update_group_epoch, update_target

MEMBER_ID_BY_CLIENT_FROM = 1
"""First version in which the client makes the member id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat; None: not changed since the last one."""

    version: int
    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    """-1: not changed."""
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Partitions | None
    denied_topics: Callable[[Iterable[str]], Collection[str]] | None = None
    """Which topics the sender may not describe; None without an authorizer."""

    @property
    def is_full(self) -> bool:
        """True when the client sent everything: it joins, or lost a response."""
        sent = self.rebalance_timeout_ms != -1 and self.owned is not None
        return self.epoch == JOIN_EPOCH or (sent and (self.topics is not None or self.regex is not None))

    def applied_to(self, before: MemberMetadata) -> MemberMetadata:
        """What the member says about itself now; it uses the consumer protocol from now on."""
        return MemberMetadata(
            instance_id=_new_or(self.instance_id, before.instance_id),
            rack_id=_new_or(self.rack_id, before.rack_id),
            client_id=self.client_id,
            client_host=self.client_host,
            topics=before.topics if self.topics is None else tuple(sorted(set(self.topics))),
            regex=_new_or(self.regex, before.regex),
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if self.rebalance_timeout_ms == -1 else self.rebalance_timeout_ms
            ),
            assignor=_new_or(self.assignor, before.assignor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The response to a heartbeat that was accepted; `assigned` None: not changed."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    assigned: Partitions | None = None


def check_request(request: HeartbeatRequest, assignors: Sequence[str]) -> None:
    """Refuse what no group accepts."""
    _require(request.group_id.strip() != "", "GroupId can't be empty.")
    _require(request.instance_id is None or request.instance_id.strip() != "", "InstanceId can't be empty.")
    _require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    by_client = request.version >= MEMBER_ID_BY_CLIENT_FROM
    if by_client or request.epoch > JOIN_EPOCH or request.epoch == LEAVE_EPOCH:
        _require(request.member_id.strip() != "", "MemberId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        _check_join(request)
    elif request.epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    elif request.epoch < LEAVE_STATIC_EPOCH:
        _require(False, "MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: HeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    _require(request.owned is not None and not request.owned, "TopicPartitions must be empty when (re-)joining.")
    _require(
        request.topics is not None or request.regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.invalid_request, message)


def heartbeat(
    draft: Draft, request: HeartbeatRequest, rules: ConsumerRules, *, topics_changed: bool
) -> HeartbeatResult:
    """A heartbeat that is no leave. `topics_changed`: the topics of the cluster may differ from the last time."""
    state = draft.state
    holder = state.static_member(request.instance_id)
    check_size("consumer", state.members, rules.limits.max_size, request.member_id, holder)
    member = _member_of(draft, request)
    if request.regex:
        compile_regex(request.regex, REGEX_FIELD)
    before = draft.state.members.get(member.member_id, member)
    metadata = request.applied_to(before.metadata)
    resubscribed = subscribe(draft, before, metadata, rules, topics_changed=topics_changed)
    current = advance(draft, member.member_id, request.owned, rules.view, resubscribed=resubscribed)
    changed = current.assigned != member.current.assigned
    return HeartbeatResult(
        member_id=member.member_id,
        epoch=current.epoch,
        interval_ms=rules.limits.heartbeat_interval_ms,
        assigned=current.assigned if changed or request.is_full else None,
    )


def subscribe(
    draft: Draft, before: ConsumerMember, metadata: MemberMetadata, rules: ConsumerRules, *, topics_changed: bool
) -> bool:
    """Store what a member says about itself; returns whether its subscription changed.

    A new subscription, a group's first member, and another assignor that most members name give the group a new epoch.
    """
    renames = before.metadata.assignor != metadata.assignor  # else no other assignor can be the one of most members
    assignor = assignor_name(draft.state, rules.limits) if renames else ""
    is_new = before.member_id not in draft.state.members
    new_regex = (before.metadata.regex or "") != (metadata.regex or "")
    resubscribed = _resubscribed(draft.state, before, metadata, rules.view)
    if is_new or before.metadata != metadata:
        draft.add(MemberRecord(before.member_id, metadata))
    changed = resubscribed or (renames and assignor_name(draft.state, rules.limits) != assignor)
    bump = changed or not draft.state.epoch
    if bump or new_regex or topics_changed:
        update_group_epoch(draft, rules, bump=bump, first=FIRST_EPOCH if changed else NEW_EPOCH)
    update_target(draft, rules)
    return resubscribed or new_regex


def _resubscribed(state: GroupData, before: ConsumerMember, metadata: MemberMetadata, view: TopicView) -> bool:
    """True when a new subscription gives the group a new epoch.

    A regular expression does so when another member has it already, or when it changes the topics of this member.
    """
    if before.metadata.topics != metadata.topics:
        return True
    old, new = before.metadata.regex or "", metadata.regex or ""
    if old == new:
        return False
    if not new or new in state.regexes:
        return True
    return topics_of(before, state) != frozenset((*metadata.topics, *resolve(new, view)))


def advance(
    draft: Draft, member_id: str, owned: Partitions | None, view: TopicView, *, resubscribed: bool
) -> CurrentAssignment:
    """Move a member one step towards its target assignment."""
    state = draft.state
    member = state.members[member_id]
    if member.is_reconciled_to(state.target_epoch) and not resubscribed:
        return member.current
    subscribed = Subscribed(partition_counts(topics_of(member, state), view).keys(), resubscribed)
    current = reconcile(member, state.target(member_id), state.target_epoch, owned, state.owners, subscribed)
    if current != member.current:
        draft.add(CurrentRecord(member_id, current))
    return current


# ---- leaving -------------------------------------------------------------------------------------


def leaving_member(state: GroupData, request: HeartbeatRequest) -> ConsumerMember:
    """The member that leaves; KafkaError where there is none."""
    if request.instance_id is None:
        return known_member(state.members, request.group_id, request.member_id)
    return own_holder(state.static_member(request.instance_id), request.member_id, request.instance_id)


def leave_for_restart(draft: Draft, member: ConsumerMember) -> HeartbeatResult:
    """A static member leaves and is expected back: it keeps its assigned partitions, as if it always had them."""
    epochs = dict.fromkeys(sorted(each(member.current.assigned)), 0)
    current = replace(member.current, epoch=LEAVE_STATIC_EPOCH, revoking=NO_PARTITIONS, epochs=epochs)
    draft.add(CurrentRecord(member.member_id, current))
    return HeartbeatResult(member_id=member.member_id, epoch=LEAVE_STATIC_EPOCH)


def remove_members(draft: Draft, member_ids: Sequence[str], rules: ConsumerRules) -> None:
    """Members left or were fenced; the next heartbeat of another member computes a new assignment.

    A group without members has assigned everything, so its assignment has the epoch of the group.
    """
    for member_id in member_ids:
        draft.remove_member(member_id)
    update_group_epoch(draft, rules, bump=True)
    if not draft.state.members:
        draft.add(TargetEpochRecord(draft.state.epoch))


def left(member_id: str) -> HeartbeatResult:
    """The response to a member that left."""
    return HeartbeatResult(member_id=member_id, epoch=LEAVE_EPOCH)


# ---- members -------------------------------------------------------------------------------------


def replace_static(draft: Draft, holder: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member returns under a new id: the new member takes over target and assigned partitions."""
    target = draft.state.target(holder.member_id)
    draft.remove_member(holder.member_id)
    current = replace(holder.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.add(
        MemberRecord(member_id, holder.metadata), TargetRecord(member_id, target), CurrentRecord(member_id, current)
    )
    return draft.state.members[member_id]


def _member_of(draft: Draft, request: HeartbeatRequest) -> ConsumerMember:
    """The member as it was before this heartbeat; a new one has no partitions."""
    state, joins = draft.state, request.epoch == JOIN_EPOCH
    if request.instance_id is not None:
        return _static_member_of(draft, request)
    member = state.members.get(request.member_id)
    if member is None and joins:
        return ConsumerMember(member_id=request.member_id)
    member = known_member(state.members, request.group_id, request.member_id)
    _check_epoch(member, request)
    return member


def _static_member_of(draft: Draft, request: HeartbeatRequest) -> ConsumerMember:
    instance_id = request.instance_id
    assert instance_id is not None, "only static members"
    holder = draft.state.static_member(instance_id)
    if request.epoch != JOIN_EPOCH:
        member = own_holder(holder, request.member_id, instance_id)
        _check_epoch(member, request)
        return member
    if holder is None:
        return draft.state.members.get(request.member_id) or ConsumerMember(member_id=request.member_id)
    if not holder.is_classic and holder.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            ErrorCode.unreleased_instance_id,
            f"Static member {request.member_id} with instance id {instance_id} cannot join the "
            f"group because the instance id is owned by {holder.member_id} member.",
        )
    return replace_static(draft, holder, request.member_id)


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    received, known = request.epoch, member.epoch
    if received in (known, JOIN_EPOCH):
        return
    # The response with the new epoch may have been lost.
    retries = received == member.current.previous_epoch and request.owned is not None
    if received < known and retries:
        assigned = set(each(member.current.assigned))
        if all(partition in assigned for partition in each(request.owned or NO_PARTITIONS)):
            return
    than = "greater" if received > known else "smaller"
    raise KafkaError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {than} member epoch ({received}) than the one known by the "
        f"group coordinator ({known}). The member must abandon all its partitions and rejoin.",
    )


def _new_or(new: str | None, before: str | None) -> str | None:
    return before if new is None else new
