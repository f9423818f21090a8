"""Which member of a consumer, share or streams group a request is from; KafkaError is what its client gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from ..errors import ErrorCode, KafkaError


class Identified(Protocol):
    """A member of a group."""

    @property
    def member_id(self) -> str:
        """Its id."""
        ...


T = TypeVar("T")
Member = TypeVar("Member", bound=Identified)


def check_size(
    kind: str, members: Mapping[str, object], max_size: int, member_id: str, holder: object | None = None
) -> None:
    """GROUP_MAX_SIZE_REACHED for a member too many; `holder`: who has its instance id, and makes room for it."""
    if member_id not in members and holder is None and len(members) >= max_size:
        raise KafkaError(
            ErrorCode.group_max_size_reached,
            f"The {kind} group has reached its maximum capacity of {max_size} members.",
        )


def known_member(members: Mapping[str, T], group_id: str, member_id: str) -> T:
    """A member; UNKNOWN_MEMBER_ID."""
    member = members.get(member_id)
    if member is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")
    return member


def own_holder(holder: Member | None, member_id: str, instance_id: str) -> Member:
    """The holder of an instance id, which must be this member; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if holder is None:
        raise KafkaError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder
