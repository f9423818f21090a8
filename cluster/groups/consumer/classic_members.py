"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Owns: pure functions on a `Draft`. To the group a classic member is a member as any other: its generation is its member
epoch, JoinGroup moves it towards the target assignment, SyncGroup returns its assigned partitions, and Heartbeat makes
it join again when its assignment must change. No classic member is a leader. LeaveGroup removes any member, because
administrators remove members with it.

Source: KIP-848 (online upgrade); Kafka's classicGroupJoinToConsumerGroup, …SyncTo…, …HeartbeatTo…, …LeaveTo….
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...coordinators import RecordFormatError
from ...errors import ErrorCode, KafkaError
from ..known_members import check_size, known_member, own_holder
from ..membership_values import NO_MEMBER, JoinRequest, JoinResult, Member, SyncRequest, SyncResult
from ..records import CONSUMER_PROTOCOL
from .consumer_protocol import Subscription, decode_subscription, encode_assignment, to_ids, to_names
from .group_state import Draft, GroupData
from .heartbeats import advance, replace_static, subscribe
from .members import ClassicMetadata, ClassicProtocol, ConsumerMember, MemberMetadata, MemberState, each
from .target_assignments import ConsumerRules


def join(draft: Draft, request: JoinRequest, rules: ConsumerRules, *, topics_changed: bool) -> JoinResult:
    """JoinGroup."""
    state = draft.state
    member_id = request.member_id or request.new_member_id
    holder = state.static_member(request.group_instance_id)
    check_size("consumer", state.members, rules.limits.max_size, member_id, holder)
    _check_protocols(state, request)
    if not request.member_id and request.member_id_required and request.group_instance_id is None:
        return JoinResult(error=ErrorCode.member_id_required, member_id=member_id)
    before = _member_of(draft, request, member_id)
    subscription = _subscription(request)
    given = metadata_of(request, subscription)
    metadata = replace(
        given, instance_id=given.instance_id or before.instance_id, rack_id=given.rack_id or before.metadata.rack_id
    )
    resubscribed = subscribe(draft, before, metadata, rules, topics_changed=topics_changed)
    owned = to_ids(subscription.owned, rules.view)
    current = advance(draft, before.member_id, owned, rules.view, resubscribed=resubscribed)
    return JoinResult(
        member_id=before.member_id,
        generation=current.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=request.protocols[0].name,
    )


def sync(state: GroupData, request: SyncRequest, rules: ConsumerRules, group_id: str) -> SyncResult:
    """SyncGroup: the assigned partitions of the member.

    A member that must revoke partitions learns from the response which ones it keeps. So it gets them although its
    epoch is older than the assignment's; a member in another state joins again (REBALANCE_IN_PROGRESS).
    """
    member = classic_member(state, group_id, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation)
    first = _classic(member).protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, first.name):
        raise KafkaError(ErrorCode.inconsistent_group_protocol)
    must_revoke = member.current.state is MemberState.UNREVOKED_PARTITIONS
    if member.epoch < state.target_epoch and not must_revoke:
        raise KafkaError(ErrorCode.rebalance_in_progress)
    return SyncResult(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encoded_assignment(member, rules),
    )


def heartbeat(state: GroupData, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Heartbeat: REBALANCE_IN_PROGRESS when the member must join again; KafkaError for an unknown member."""
    member = classic_member(state, group_id, member_id, instance_id)
    _check_generation(member, generation)
    must_join = (
        member.epoch < state.target_epoch
        or member.current.state is MemberState.UNREVOKED_PARTITIONS
        or (member.current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(state, member))
    )
    return ErrorCode.rebalance_in_progress if must_join else ErrorCode.none


def leaving_member(state: GroupData, group_id: str, member_id: str, instance_id: str | None) -> ConsumerMember:
    """The member that LeaveGroup names, of either protocol; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.

    An empty member id with an instance id names the holder of the instance id.
    """
    holder = state.static_member(instance_id)
    if member_id == NO_MEMBER and holder is not None:
        return holder
    return _member(state, group_id, member_id, instance_id)


def classic_member(state: GroupData, group_id: str, member_id: str, instance_id: str | None) -> ConsumerMember:
    """A member that uses the classic protocol; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = _member(state, group_id, member_id, instance_id)
    if not member.is_classic:
        raise KafkaError(ErrorCode.unknown_member_id, f"Member {member.member_id} does not use the classic protocol.")
    return member


def _member(state: GroupData, group_id: str, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return known_member(state.members, group_id, member_id)
    return own_holder(state.static_member(instance_id), member_id, instance_id)


def encoded_assignment(member: ConsumerMember, rules: ConsumerRules) -> bytes:
    """The assigned partitions, in the version of the member's subscription."""
    metadata = _classic(member).protocols[0].metadata
    version = decode_subscription(metadata).version
    return encode_assignment(version, to_names(member.current.assigned, rules.view))


def _classic(member: ConsumerMember) -> ClassicMetadata:
    classic = member.metadata.classic
    assert classic is not None, f"{member.member_id} uses the consumer protocol"
    return classic


def _check_protocols(state: GroupData, request: JoinRequest) -> None:
    """Each classic member must support one of the protocols; as in Kafka, the member that joins again counts too."""
    counts = Counter(
        protocol.name
        for member in state.members.values()
        for protocol in (member.metadata.classic.protocols if member.metadata.classic else ())
    )
    classic = state.classic_count()
    shared = any(counts[protocol.name] == classic for protocol in request.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL or not request.protocols or not shared:
        raise KafkaError(ErrorCode.inconsistent_group_protocol)


def _subscription(request: JoinRequest) -> Subscription:
    try:
        return decode_subscription(request.protocols[0].metadata)
    except RecordFormatError:
        text = "Malformed embedded consumer protocol in subscription deserialization."
        raise KafkaError(ErrorCode.inconsistent_group_protocol, text) from None


def _member_of(draft: Draft, request: JoinRequest, member_id: str) -> ConsumerMember:
    state, instance_id = draft.state, request.group_instance_id
    if instance_id is not None:
        holder = state.static_member(instance_id)
        if request.member_id:
            return own_holder(holder, member_id, instance_id)
        if holder is not None:
            return replace_static(draft, holder, member_id)
    return state.members.get(member_id) or ConsumerMember(member_id=member_id)


def metadata_of(member: JoinRequest | Member, subscription: Subscription) -> MemberMetadata:
    """What a consumer group stores of a member of the classic protocol."""
    return MemberMetadata(
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms,
            protocols=tuple(ClassicProtocol(*protocol) for protocol in member.protocols),
        ),
    )


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise KafkaError(ErrorCode.illegal_generation)


def _waits_for_others(state: GroupData, member: ConsumerMember) -> bool:
    assigned = set(each(member.current.assigned))
    return any(
        partition not in assigned and state.owners.get(partition, member.member_id) != member.member_id
        for partition in each(state.target(member.member_id))
    )
