"""What the tap has of the members of a classic group: who owned which partition in which generation (J6)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from harrow.cluster.groups.members import Member
from harrow.cluster.groups.membership import Group
from harrow.cluster.groups.rebalance import GroupLimits
from harrow.cluster.groups.tapped_members import TappedMembers
from harrow.cluster.host.tap import NoTap
from harrow.cluster.ids import TopicPartition


class MemberTap(NoTap):
    """A tap that stores the calls about members."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, list[int]]] = []

    def member(
        self,
        group: str,
        member: str,
        client: str,
        *,
        generation: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """One call."""
        assert (group, client) == ("billing", "app")
        self.rows.append((member, generation, [tp.partition for tp in partitions]))


def assignment(*partitions: int) -> bytes:
    rows = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih6s", 0, 1, 6, b"orders") + rows + struct.pack(">i", -1)


def member(name: str, *partitions: int) -> Member:
    return Member(
        member_id=name, group_instance_id=None, client_id="app", client_host="", rebalance_timeout_ms=1,
        session_timeout_ms=1, protocols=(), assignment=assignment(*partitions),
    )  # fmt: skip


def group_of(*members: Member, generation: int = 3, protocol_type: str = "consumer") -> Group:
    group = Group("billing", GroupLimits(initial_rebalance_delay_ms=0, max_size=10))
    stored: dict[str, Any] = {"protocol_name": "range", "leader": members[0].member_id}
    group.restore(generation=generation, protocol_type=protocol_type, members=members, **stored)
    return group


def test_a_generation_is_reported_once() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0, 2), member("b", 1))
    tapped.report(tap, group)
    tapped.report(tap, group)
    assert tap.rows == [("a", 3, [0, 2]), ("b", 3, [1])]


def test_a_member_that_was_removed_owns_nothing() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0), member("b", 1))
    tapped.report(tap, group)
    tap.rows.clear()
    group.leave("b", None, 0)
    tapped.report(tap, group)
    assert tap.rows == [("b", 3, [])]


def test_a_group_that_moves_to_another_coordinator_keeps_its_owners() -> None:
    from harrow.cluster.errors import ErrorCode

    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0))
    tapped.report(tap, group)
    tap.rows.clear()
    group.close(ErrorCode.not_coordinator)
    tapped.report(tap, group)
    assert not tap.rows


def test_a_static_member_owns_its_partitions_when_its_replacement_is_committed() -> None:
    from harrow.cluster.errors import ErrorCode
    from harrow.cluster.groups.members import JoinRequest, Protocol, WriteGroupMetadata

    tap, tapped = MemberTap(), TappedMembers()
    old = member("a", 0)
    old.group_instance_id, old.protocols = "i", (Protocol("range", b""),)
    group = group_of(old)
    tapped.report(tap, group)
    tap.rows.clear()
    join = JoinRequest(
        token="join", member_id="", new_member_id="b", group_instance_id="i", client_id="app", client_host="",
        session_timeout_ms=1, rebalance_timeout_ms=1, protocol_type="consumer", protocols=old.protocols,
        member_id_required=False, can_skip_assignment=True,
    )  # fmt: skip
    for error in (ErrorCode.not_coordinator, ErrorCode.none):
        (write,) = group.join(join, 0)
        assert isinstance(write, WriteGroupMetadata)
        tapped.report(tap, group)
        assert not tap.rows
        group.metadata_written(write, error, 0)
        tapped.report(tap, group)
    assert tap.rows == [("a", 3, []), ("b", 3, [0])]


def test_assignments_that_the_broker_cannot_read_have_no_owner() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    damaged = member("a", 0)
    damaged.assignment = b"\0\0\0\0\0\7x"
    tapped.report(tap, group_of(damaged))
    tapped.report(tap, group_of(member("b", 1), generation=4, protocol_type="connect"))
    assert ("a", 3, []) in tap.rows
    assert all(name != "b" for name, _, _ in tap.rows)
