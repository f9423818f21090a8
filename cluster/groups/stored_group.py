"""A group as its record in `__consumer_offsets` stores it: written from the state machine, restored into it.

Owns: the translation between `Group` and `GroupValue` in both directions.

Source: Kafka's GroupMetadataManager (storeGroup, loadGroup) and GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from ..coordinators import KeyValue
from .membership import Group
from .membership_values import Member, Protocol, WriteGroupMetadata
from .records import GroupValue, MemberValue, encode_group_key, encode_group_value


def group_record(group: Group, write: WriteGroupMetadata, since_ms: int | None) -> KeyValue:
    """The record of a generation with the assignments that `write` carries."""
    members = [
        MemberValue(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=write.assignments.get(member.member_id, b""),
        )
        for member in group.members
    ]
    value = GroupValue(
        protocol_type=group.members.protocol_type or "",
        generation=write.generation,
        protocol=group.protocol_name,
        leader=group.members.leader,
        since_ms=-1 if since_ms is None else since_ms,
        members=members,
    )
    return encode_group_key(group.group_id), encode_group_value(value)


def restore_group(group: Group, value: GroupValue) -> None:
    """Give `group`, which is new, the generation and the members that `value` stores."""
    protocol = value.protocol or ""
    group.restore(
        generation=value.generation,
        protocol_type=value.protocol_type,
        protocol_name=value.protocol,
        leader=value.leader,
        members=[
            Member(
                member_id=row.member_id,
                group_instance_id=row.group_instance_id,
                client_id=row.client_id,
                client_host=row.client_host,
                rebalance_timeout_ms=row.rebalance_timeout_ms,
                session_timeout_ms=row.session_timeout_ms,
                protocols=(Protocol(protocol, row.subscription),),
                assignment=row.assignment,
            )
            for row in value.members
        ],
    )
