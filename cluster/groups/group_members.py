"""The members of a group, its leader, and the protocol that every member supports.

Owns: the members by id, the instance ids of static members (KIP-345), the replacements of static members that are
not committed yet, the leader. Invariants: while the group has members, its leader is a member; each instance id belongs
to one member.

Source: Kafka's ClassicGroup (members, staticMembers, leaderId, supportedProtocols).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..errors import ErrorCode
from .membership_values import NO_MEMBER, Member, Protocol


class GroupMembers:
    """The members of one group by id, in the order in which they joined."""

    __slots__ = ("_members", "_replaced", "_static_ids", "leader", "protocol_type")

    def __init__(self) -> None:
        self.protocol_type: str | None = None
        self.leader: str | None = None
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}  # group instance id -> member id
        self._replaced: dict[str, Member] = {}  # new member id -> the member before it

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        """The member of that id."""
        return self._members.get(member_id)

    def ids(self) -> list[str]:
        """All member ids."""
        return list(self._members)

    def holder(self, group_instance_id: str | None) -> Member | None:
        """The member that has a static instance id now."""
        member_id = self._static_ids.get(group_instance_id or "")
        return None if member_id is None else self._members[member_id]

    def check(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE for a member; FENCED_INSTANCE_ID when its instance id belongs to another member id now."""
        if group_instance_id is not None:
            holder = self._static_ids.get(group_instance_id)
            if holder is None:
                return ErrorCode.unknown_member_id
            if holder != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self._members else ErrorCode.unknown_member_id

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first member sets the protocol type and is the leader."""
        if not self._members:
            self.protocol_type = protocol_type
        assert member.member_id not in self._members, f"{member.member_id} is a member already"
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_ids[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member; if it was the leader, the next member is."""
        del self._members[member.member_id]
        if member.group_instance_id is not None:
            self._static_ids.pop(member.group_instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)
        assert (self.leader in self._members) == bool(self._members), f"leader {self.leader}"

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id; a leader stays the leader."""
        assert member.group_instance_id is not None, "only static members are renamed"
        assert member_id not in self._members, f"{member.member_id} gets the id of another member, {member_id}"
        holder = self._static_ids.get(member.group_instance_id)
        assert holder == member.member_id, f"{member.group_instance_id} is held by {holder}, not {member.member_id}"
        del self._members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self._members[member_id] = member
        self._static_ids[member.group_instance_id] = member_id

    @property
    def is_replacing(self) -> bool:
        """True while the log may lack the new id of a static member."""
        return bool(self._replaced)

    def replacement_begun(self, member_id: str, before: Member) -> None:
        """A static member has a new id, which is being written; `before` is what the member was."""
        self._replaced[member_id] = before

    def replacement_ended(self, member_id: str, *, stored: bool) -> Member | None:
        """The result of writing a new id; returns the member that the log has without it, None for an unknown id.

        A member may be replaced again before the result is known. Then the later replacement, too, goes back to the
        member that the log has if it fails.
        """
        before = self._replaced.pop(member_id, None)
        if before is not None and not stored:
            for later, replaced in self._replaced.items():
                if replaced.member_id == member_id:
                    self._replaced[later] = before
        return before

    def restore(self, members: Iterable[Member], leader: str | None, protocol_type: str) -> None:
        """Add the members that the log stores."""
        for member in members:
            self.add(member, protocol_type)
        self.protocol_type = protocol_type or None
        if leader is not None and (leader in self._members or not self._members):
            self.leader = leader if self._members else None

    def elect_leader(self) -> bool:
        """Keep the leader if it waits to join, else elect the first member that does; False when no member does."""
        current = self._members.get(self.leader or NO_MEMBER)
        if current is not None and current.joining is not None:
            return True
        joined = next((m.member_id for m in self._members.values() if m.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """True when a member with these protocols shares a protocol with every present member."""
        if not protocol_type or not protocols:
            return False
        if not self._members:
            return True
        shared = self._shared_protocols()
        return protocol_type == self.protocol_type and any(p.name in shared for p in protocols)

    def select_protocol(self) -> str:
        """Each member votes for its favourite among the shared protocols; the order of the members decides a tie."""
        shared = self._shared_protocols()
        votes = Counter(vote for m in self._members.values() if (vote := m.vote(shared)) is not None)
        assert votes, "members without a common protocol"
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def joined_count(self) -> int:
        """Number of members whose JoinGroup waits for the rebalance."""
        return sum(member.joining is not None for member in self._members.values())

    def _shared_protocols(self) -> frozenset[str]:
        counts = Counter(name for m in self._members.values() for name in {p.name for p in m.protocols})
        return frozenset(name for name, count in counts.items() if count == len(self._members))
