"""What the tap has of the members of a classic group: who owned which partition in which generation (J6)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.membership import Group
from harrow.cluster.groups.membership_values import JoinRequest, Member, Protocol, WriteGroupMetadata
from harrow.cluster.groups.rebalance import GroupLimits
from harrow.cluster.groups.tapped_members import TappedMembers
from harrow.cluster.host.seam import NoTap
from harrow.cluster.ids import TopicPartition

LEADER_EPOCH = 4


class MemberTap(NoTap):
    """A tap that stores the calls about members."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, list[int]]] = []
        self.instances: dict[str, str] = {}

    def member(
        self,
        group: str,
        member: str,
        client: str,
        *,
        generation: int,
        partitions: Iterable[TopicPartition],
        leader_epoch: int = -1,
        instance: str | None = None,
    ) -> None:
        """One call."""
        assert (group, client, leader_epoch) == ("billing", "app", LEADER_EPOCH)
        if instance is not None:
            self.instances[member] = instance
        self.rows.append((member, generation, [tp.partition for tp in partitions]))


def assignment(*partitions: int) -> bytes:
    rows = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih6s", 0, 1, 6, b"orders") + rows + struct.pack(">i", -1)


def member(name: str, *partitions: int) -> Member:
    return Member(
        member_id=name,
        group_instance_id=None,
        client_id="app",
        client_host="",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=(),
        assignment=assignment(*partitions),
    )


def group_of(*members: Member, generation: int = 3, protocol_type: str = "consumer") -> Group:
    group = Group("billing", GroupLimits(initial_rebalance_delay_ms=0, max_size=10))
    stored: dict[str, Any] = {"protocol_name": "range", "leader": members[0].member_id}
    group.restore(generation=generation, protocol_type=protocol_type, members=members, **stored)
    return group


def test_a_generation_is_reported_once() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0, 2), member("b", 1))
    tapped.report(tap, group, LEADER_EPOCH)
    tapped.report(tap, group, LEADER_EPOCH)
    assert tap.rows == [("a", 3, [0, 2]), ("b", 3, [1])]


def test_a_member_that_was_removed_owns_nothing() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0), member("b", 1))
    tapped.report(tap, group, LEADER_EPOCH)
    tap.rows.clear()
    group.leave("b", None, 0)
    tapped.report(tap, group, LEADER_EPOCH)
    assert tap.rows == [("b", 3, [])]


def test_a_group_that_moves_to_another_coordinator_keeps_its_owners() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = group_of(member("a", 0))
    tapped.report(tap, group, LEADER_EPOCH)
    tap.rows.clear()
    group.close(ErrorCode.not_coordinator)
    tapped.report(tap, group, LEADER_EPOCH)
    assert not tap.rows


def static_group(tap: MemberTap, tapped: TappedMembers) -> Group:
    """A stable group of the static member a, which the tap has."""
    old = member("a", 0)
    old.group_instance_id, old.protocols = "i", (Protocol("range", b""),)
    group = group_of(old)
    tapped.report(tap, group, LEADER_EPOCH)
    tap.rows.clear()
    return group


def replacement(group: Group, member_id: str) -> WriteGroupMetadata:
    """The write for a static member that joins again and gets `member_id`."""
    join = JoinRequest(
        token=member_id,
        member_id="",
        new_member_id=member_id,
        group_instance_id="i",
        client_id="app",
        client_host="",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
        member_id_required=False,
        can_skip_assignment=True,
    )
    (write,) = (w for w in group.join(join, 0) if isinstance(w, WriteGroupMetadata))
    return write


def test_a_static_member_owns_its_partitions_when_its_replacement_is_committed() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = static_group(tap, tapped)
    for error in (ErrorCode.not_coordinator, ErrorCode.none):
        write = replacement(group, "b")
        tapped.report(tap, group, LEADER_EPOCH)
        assert not tap.rows
        group.metadata_written(write, error, 0)
        tapped.report(tap, group, LEADER_EPOCH)
    assert tap.rows == [("a", 3, []), ("b", 3, [0])]
    assert tap.instances == {"a": "i", "b": "i"}


@pytest.mark.parametrize("last_result_first", [False, True])
def test_a_static_member_that_is_replaced_twice_before_a_commit_fails_stays_the_owner(last_result_first: bool) -> None:
    tap, tapped = MemberTap(), TappedMembers()
    group = static_group(tap, tapped)
    pending = [replacement(group, name) for name in ("b", "c")]
    for write in reversed(pending) if last_result_first else pending:
        group.metadata_written(write, ErrorCode.not_coordinator, 0)
        tapped.report(tap, group, LEADER_EPOCH)
    assert not tap.rows
    group.metadata_written(replacement(group, "d"), ErrorCode.none, 0)
    tapped.report(tap, group, LEADER_EPOCH)
    assert tap.rows == [("a", 3, []), ("d", 3, [0])]


def test_assignments_that_the_broker_cannot_read_have_no_owner() -> None:
    tap, tapped = MemberTap(), TappedMembers()
    damaged = member("a", 0)
    damaged.assignment = b"\0\0\0\0\0\7x"
    tapped.report(tap, group_of(damaged), LEADER_EPOCH)
    tapped.report(tap, group_of(member("b", 1), generation=4, protocol_type="connect"), LEADER_EPOCH)
    assert ("a", 3, []) in tap.rows
    assert all(name != "b" for name, _, _ in tap.rows)
