"""A classic group becomes a consumer group, and back, while its members live (KIP-848).

Owns: both conversions of state. The first member of the new protocol turns a classic group of consumers into a consumer
group whose members keep their partitions; when the last one leaves, the group becomes a classic group again, and its
members join for a rebalance. Committed offsets belong to the group and stay.

Source: Kafka's ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup, GroupMetadataManager.validateOnline….
"""

from __future__ import annotations

from ...coordinators import RecordFormatError
from ...errors import ErrorCode, KafkaError
from ..membership import Group
from ..membership_values import Member, Protocol
from ..rebalance import GroupLimits
from ..records import CONSUMER_PROTOCOL
from .classic_members import metadata_of
from .consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    has_user_data,
    to_ids,
    to_names,
)
from .group_records import (
    ConsumerRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
)
from .group_state import GroupData
from .members import CurrentAssignment, MemberMetadata, each
from .subscriptions import TopicView, metadata_hash, partition_counts
from .target_assignments import ConsumerLimits, ConsumerRules


def check_upgrade(group: Group, limits: ConsumerLimits) -> None:
    """KafkaError(GROUP_ID_NOT_FOUND) unless a classic group with members may become a consumer group."""
    is_small = len(group.members) <= limits.max_size
    if not limits.upgrades or group.members.protocol_type != CONSUMER_PROTOCOL or not is_small:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group.group_id} is not a consumer group.")


def records_of_classic(group: Group, view: TopicView) -> list[ConsumerRecord]:
    """The records of a consumer group with the members and the assignments of a classic group.

    KafkaError(GROUP_ID_NOT_FOUND) for a group whose assignments have user data: only a custom assignor reads them, and
    librdkafka's `sticky` and `cooperative-sticky`, which write what each member had before.
    """
    try:
        _check_assignor(group)
        members = [_converted(group, member, view) for member in group.members]
    except RecordFormatError as error:
        raise KafkaError(
            ErrorCode.group_id_not_found,
            f"Cannot upgrade the classic group {group.group_id} to consumer group because the embedded "
            f"consumer protocol is malformed: {error}.",
        ) from None
    generation = group.generation
    names = {name for _, metadata, _ in members for name in metadata.topics}
    return [
        *(MemberRecord(member_id, metadata) for member_id, metadata, _ in members),
        GroupEpochRecord(GroupEpoch(generation, metadata_hash(partition_counts(names, view)))),
        *(TargetRecord(member_id, current.assigned) for member_id, _, current in members),
        TargetEpochRecord(generation),
        *(CurrentRecord(member_id, current) for member_id, _, current in members),
    ]


def _check_assignor(group: Group) -> None:
    if any(has_user_data(member.assignment or b"") for member in group.members):
        raise KafkaError(
            ErrorCode.group_id_not_found,
            f"Cannot upgrade classic group {group.group_id} to consumer group because an unsupported custom assignor "
            f"is in use: the assignments of protocol {group.protocol_name} have user data. Change the group to "
            "range, roundrobin or Java's cooperative-sticky first.",
        )


def _converted(group: Group, member: Member, view: TopicView) -> tuple[str, MemberMetadata, CurrentAssignment]:
    name = group.protocol_name
    subscription = decode_subscription(member.metadata(name) if name is not None else member.protocols[0].metadata)
    metadata = metadata_of(member, subscription)
    assigned = to_ids(decode_assignment(member.assignment or b""), view)
    current = CurrentAssignment(
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=assigned,
        epochs=dict.fromkeys(sorted(each(assigned)), group.generation),
    )
    return member.member_id, metadata, current


def may_downgrade(state: GroupData, limits: ConsumerLimits) -> bool:
    """True for a group of classic members only."""
    count = len(state.members)
    is_classic = 0 < count == state.classic_count()
    return is_classic and limits.downgrades and count <= limits.classic_max_size


def classic_group(group_id: str, state: GroupData, generation: int, rules: ConsumerRules, limits: GroupLimits) -> Group:
    """A Stable classic group with the members and the target assignment of a consumer group."""
    members = [
        Member(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.metadata.client_id,
            client_host=member.metadata.client_host,
            rebalance_timeout_ms=member.metadata.rebalance_timeout_ms,
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple(Protocol(*protocol) for protocol in classic.protocols),
            assignment=encode_assignment(
                decode_subscription(classic.protocols[0].metadata).version,
                to_names(state.target(member.member_id), rules.view),
            ),
        )
        for member in state.members.values()
        if (classic := member.metadata.classic) is not None
    ]
    group = Group(group_id, limits)
    group.restore(
        generation=generation, protocol_type=CONSUMER_PROTOCOL, protocol_name=None, leader=None, members=members
    )
    group.protocol_name = group.members.select_protocol()
    return group
