"""Reports to the tap which members of a classic group own which partitions (J6).

Owns: what it reported last, so that a call without a change costs a comparison.
The broker can read the assignments of consumers only; a group with another protocol type has no rows.
"""

from __future__ import annotations

from ..coordinators import RecordFormatError
from ..host.seam import Tap
from ..ids import TopicPartition
from .membership import Group
from .membership_values import Member
from .records import CONSUMER_PROTOCOL, decode_assignment
from .states import DEAD, STABLE


class TappedMembers:
    """What the tap has of one group; `report` follows each change of the group."""

    __slots__ = ("_clients", "_stable")

    def __init__(self) -> None:
        self._clients: dict[str, str] = {}  # member id -> client id
        self._stable: tuple[int, tuple[str, ...]] | None = None

    def report(self, tap: Tap, group: Group, leader_epoch: int) -> None:
        """Report members that left, and the partitions of all members when an assignment is in the log.

        A group that is Dead has moved to another coordinator with its members, so nothing is reported. Nor is a static
        member that replaces another one, while its record is not committed: another coordinator may not know it.
        """
        if group.state is DEAD or _is_replacing(group):
            return
        members = {member.member_id: member for member in group.members}
        for member_id in self._clients.keys() - members.keys():
            tap.member(
                group.group_id,
                member_id,
                self._clients.pop(member_id),
                generation=group.generation,
                partitions=(),
                leader_epoch=leader_epoch,
            )
        stable = group.generation, tuple(members)
        if group.state is not STABLE or stable == self._stable:
            return
        if group.members.protocol_type != CONSUMER_PROTOCOL:
            return
        self._stable = stable
        for member in members.values():
            self._clients[member.member_id] = member.client_id
            tap.member(
                group.group_id,
                member.member_id,
                member.client_id,
                generation=group.generation,
                partitions=_assigned(member),
                leader_epoch=leader_epoch,
                instance=member.group_instance_id,
            )

    def adopt(self, group: Group) -> None:
        """The group was a consumer group before, whose tap has the members' partitions."""
        self._clients = {member.member_id: member.client_id for member in group.members}


def _is_replacing(group: Group) -> bool:
    """True while the log may lack the id of a static member of a stable group."""
    return group.state is STABLE and group.members.is_replacing


def _assigned(member: Member) -> tuple[TopicPartition, ...]:
    if not member.assignment:
        return ()
    try:
        return decode_assignment(member.assignment)
    except RecordFormatError:
        return ()
