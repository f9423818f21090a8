"""A classic group becomes a consumer group and back while its members live, as in Apache Kafka 4.2 (G2)."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import pytest
from consumer_group_requests import ModelConsumer, assigned, consumer_heartbeat, consumer_join, described
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets, heartbeat, leave, subscription
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.consumer.consumer_protocol import decode_assignment, encode_assignment
from harrow.cluster.internal_topics import partition_for
from harrow.cluster.wire.api_keys import ApiKey

ORDERS = subscription("orders")
MISSING = next(name for n in range(999) if partition_for(name := f"missing-{n}", 50) == HOME)
ALL = encode_assignment(0, {"orders": [0, 1, 2]})


def owning(*numbers: int) -> bytes:
    """ConsumerProtocolSubscription v1 of a cooperative member."""
    owned = struct.pack(">i", 1) + struct.pack(">h", 6) + b"orders"
    owned += struct.pack(">i", len(numbers)) + b"".join(struct.pack(">i", n) for n in numbers)
    return b"\0\1" + ORDERS[2:] + owned


def join(bed: GroupTestBed, member_id: str = "", metadata: bytes = ORDERS, **more: Any) -> Any:
    """The response to a JoinGroup; None while it waits."""
    protocol = {"name": "range", "metadata": metadata}
    return bed.send(
        ApiKey.JOIN_GROUP,
        9,
        group_id=GROUP,
        session_timeout=timedelta(seconds=more.pop("session_s", 10)),
        rebalance_timeout=timedelta(seconds=60),
        member_id=member_id,
        protocol_type=more.pop("protocol_type", "consumer"),
        protocols=(protocol,),
        **more,
    ).response


def sync(bed: GroupTestBed, member_id: str, generation: int, **given: bytes) -> Any:
    """The response to a SyncGroup."""
    rows = tuple({"member_id": name, "assignment": value} for name, value in given.items())
    return bed.send(
        ApiKey.SYNC_GROUP,
        5,
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=rows,
    ).response


def stable_classic(bed: GroupTestBed, **more: Any) -> str:
    """A classic group of one member that has every partition; returns the member id."""
    member_id: str = join(bed, **more).member_id
    joined = join(bed, member_id, **more)
    assert joined.generation_id == 1
    assert sync(bed, member_id, 1, **{member_id: ALL}).error_code is ErrorCode.none
    return member_id


def given(response: Any) -> list[int]:
    """The partitions of a SyncGroup response."""
    return sorted(tp.partition for tp in decode_assignment(bytes(response.assignment)))


def test_classic_group_is_upgraded_and_downgraded_with_its_members(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    commit(bed, 7, old, 1)
    new = consumer_join(bed, "new")
    assert (new.member_epoch, assigned(new, bed)) == (2, {}), "the classic member has everything"
    assert [(m.member_id, m.member_type) for m in described(bed).members] == [(old, 0), ("new", 1)]
    assert heartbeat(bed, old, 1) is ErrorCode.rebalance_in_progress
    rejoined = join(bed, old)
    assert (rejoined.generation_id, rejoined.leader, rejoined.protocol_name) == (2, "", "range")
    kept = given(sync(bed, old, 2))
    assert len(kept) == 2
    assert heartbeat(bed, old, 2) is ErrorCode.none
    freed = assigned(consumer_heartbeat(bed, "new", 2), bed)
    assert freed is not None
    assert sorted(kept + freed["orders"]) == [0, 1, 2]
    assert described(bed).group_state == "Stable"
    consumer_heartbeat(bed, "new", -1)
    rows = bed.send(ApiKey.LIST_GROUPS, 5).response.groups
    assert [(row.group_state, row.group_type) for row in rows] == [("PreparingRebalance", "classic")]
    assert heartbeat(bed, old, 2) is ErrorCode.rebalance_in_progress
    back = join(bed, old)
    assert (back.generation_id, back.leader, len(back.members)) == (3, old, 1)
    assert sync(bed, old, 3, **{old: ALL}).error_code is ErrorCode.none
    assert committed_offsets(bed) == {("orders", 0): 7}


def test_cooperative_member_revokes_before_another_member_gets_the_partition(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    consumer_join(bed, "new")
    joined = join(bed, old, owning(0, 1, 2))
    assert joined.generation_id == 1, "it must revoke first"
    assert assigned(consumer_heartbeat(bed, "new", 2), bed) is None
    assert heartbeat(bed, old, 1) is ErrorCode.rebalance_in_progress
    learnt = given(sync(bed, old, 1))
    assert len(learnt) == 2, "what it keeps"
    again = join(bed, old, owning(*learnt))
    assert again.generation_id == 2
    kept = given(sync(bed, old, 2))
    assert kept == learnt
    freed = assigned(consumer_heartbeat(bed, "new", 2), bed)
    assert freed is not None
    assert sorted(kept + freed["orders"]) == [0, 1, 2]


def test_member_that_waits_for_a_rebalance_joins_again_after_the_upgrade(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    protocol = {"name": "range", "metadata": ORDERS}
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=60),
        "protocol_type": "consumer",
        "protocols": (protocol,),
    }
    second = bed.send(ApiKey.JOIN_GROUP, 5, member_id="", **fields).response.member_id
    waiting = bed.send(ApiKey.JOIN_GROUP, 5, member_id=second, **fields)
    assert not waiting.has_response, f"{old} has not joined"
    assert consumer_join(bed, "new").error_code is ErrorCode.none
    assert waiting.response.error_code is ErrorCode.rebalance_in_progress


def test_consumer_member_that_dies_makes_the_group_classic_again(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    consumer_join(bed, "new")
    join(bed, old)
    sync(bed, old, 2)
    for _ in range(10):
        bed.host.advance(5_000)
        heartbeat(bed, old, 2)
    rows = bed.send(ApiKey.LIST_GROUPS, 5).response.groups
    assert [row.group_type for row in rows] == ["classic"]
    assert heartbeat(bed, old, 2) is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize("first_upgrade", [True, False])
def test_converted_group_survives_its_coordinator(bed: GroupTestBed, *, first_upgrade: bool) -> None:
    old = stable_classic(bed)
    consumer_join(bed, "new")
    if not first_upgrade:
        consumer_heartbeat(bed, "new", -1)
    before = bed.send(ApiKey.LIST_GROUPS, 5).response.groups[0]
    bed.resign(HOME)
    bed.lead(HOME)
    after = bed.send(ApiKey.LIST_GROUPS, 5).response.groups[0]
    assert after.group_type == before.group_type == ("consumer" if first_upgrade else "classic")
    if first_upgrade:
        assert heartbeat(bed, old, 1) is ErrorCode.rebalance_in_progress
    else:
        assert join(bed, old).error_code is ErrorCode.none


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "downgrade", "disabled"])
def test_migration_policy_is_followed(policy: str) -> None:
    bed = GroupTestBed(group_consumer_migration_policy=policy)
    bed.lead(HOME)
    stable_classic(bed)
    joined = consumer_join(bed, "new")
    if policy in ("downgrade", "disabled"):
        assert joined.error_code is ErrorCode.group_id_not_found
        return
    assert joined.error_code is ErrorCode.none
    consumer_heartbeat(bed, "new", -1)
    kind = bed.send(ApiKey.LIST_GROUPS, 5).response.groups[0].group_type
    assert kind == ("consumer" if policy == "upgrade" else "classic")


def test_group_of_another_protocol_type_is_not_upgraded(bed: GroupTestBed) -> None:
    member_id = join(bed, protocol_type="connect").member_id
    join(bed, member_id, protocol_type="connect")
    response = consumer_join(bed, "new")
    assert response.error_code is ErrorCode.group_id_not_found
    assert response.error_message == f"Group {GROUP} is not a consumer group."


def test_failed_write_leaves_the_classic_group_as_it_was(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    bed.replicas.next_error = ErrorCode.not_enough_replicas
    assert consumer_join(bed, "new").error_code is ErrorCode.coordinator_not_available
    assert heartbeat(bed, old, 1) is ErrorCode.none
    assert sync(bed, old, 1).error_code is ErrorCode.none
    assert consumer_join(bed, "new").member_epoch == 2


@pytest.mark.parametrize("then", ["classic", "consumer"])
def test_empty_group_takes_the_protocol_of_its_next_member(bed: GroupTestBed, then: str) -> None:
    if then == "consumer":
        old = stable_classic(bed)
        commit(bed, 3, old, 1)
        assert leave(bed, old) is ErrorCode.none
        assert consumer_join(bed, "new").member_epoch == 2
    else:
        consumer_join(bed, "new")
        commit(bed, 3, "new", 2)
        consumer_heartbeat(bed, "new", -1)
        stable_classic(bed)
    rows = bed.send(ApiKey.LIST_GROUPS, 5).response.groups
    assert [(row.group_state, row.group_type) for row in rows] == [("Stable", then)]
    assert committed_offsets(bed) == {("orders", 0): 3}
    bed.resign(HOME)
    bed.lead(HOME)
    rows = bed.send(ApiKey.LIST_GROUPS, 5).response.groups
    assert [(row.group_state, row.group_type) for row in rows] == [("Stable", then)]


def test_errors_of_classic_requests_to_a_consumer_group(bed: GroupTestBed) -> None:
    new = ModelConsumer(bed, "new")
    new.beat()
    assert join(bed, protocol_type="connect").error_code is ErrorCode.inconsistent_group_protocol
    classic = join(bed)
    assert classic.error_code is ErrorCode.member_id_required
    member_id = classic.member_id
    joined = join(bed, member_id)
    assert joined.generation_id == 3
    assert sync(bed, member_id, 9).error_code is ErrorCode.illegal_generation
    assert given(sync(bed, member_id, 2)) == []
    assert heartbeat(bed, member_id, 9) is ErrorCode.illegal_generation
    assert heartbeat(bed, "new", 1) is ErrorCode.unknown_member_id, "it is no classic member"
    refused = join(bed, "x", b"?")
    assert (refused.error_code, refused.member_id) == (ErrorCode.inconsistent_group_protocol, "")
    assert leave(bed, "new") is ErrorCode.none, "administrators remove any member"
    assert leave(bed, member_id) is ErrorCode.none, "the group is classic again"


def test_classic_member_that_does_not_sync_is_fenced(bed: GroupTestBed) -> None:
    new = ModelConsumer(bed, "new")
    new.beat()
    member_id = join(bed).member_id
    join(bed, member_id)
    for _ in range(8):
        bed.host.advance(9_000)
        heartbeat(bed, member_id, 2)
        new.beat()
    assert heartbeat(bed, member_id, 2) is ErrorCode.unknown_member_id
    new.beat()
    assert len(new.partitions()) == 3


def test_static_member_changes_its_protocol_by_a_restart(bed: GroupTestBed) -> None:
    """Its new incarnation takes over from the old one, and the group follows."""
    joined = join(bed, group_instance_id="i")
    assert sync(bed, joined.member_id, 1, **{joined.member_id: ALL}).error_code is ErrorCode.none
    new = consumer_join(bed, "new", instance_id="i")
    assert (new.error_code.name, assigned(new, bed)) == ("none", {"orders": [0, 1, 2]})
    assert bed.send(ApiKey.LIST_GROUPS, 5).response.groups[0].group_type == "consumer"
    back = join(bed, group_instance_id="i")
    assert back.error_code is ErrorCode.none
    assert bed.send(ApiKey.LIST_GROUPS, 5).response.groups[0].group_type == "classic"
    assert given(sync(bed, back.member_id, back.generation_id)) == [0, 1, 2]


def test_classic_member_that_must_revoke_and_does_not_join_is_fenced(bed: GroupTestBed) -> None:
    old = stable_classic(bed)
    new = ModelConsumer(bed, "new")
    new.beat()
    join(bed, old, owning(0, 1, 2))
    assert sync(bed, old, 1).error_code is ErrorCode.none
    for _ in range(8):  # the rebalance timeout is 60 s
        bed.host.advance(9_000)
        heartbeat(bed, old, 1)
        new.beat()
    assert heartbeat(bed, old, 1) is ErrorCode.unknown_member_id


def test_sync_of_a_member_that_must_join_begins_its_join_timeout(bed: GroupTestBed) -> None:
    old = stable_classic(bed, session_s=600)
    new = ModelConsumer(bed, "new")
    new.beat()
    assert sync(bed, old, 1).error_code is ErrorCode.rebalance_in_progress
    for _ in range(8):  # the rebalance timeout is 60 s
        bed.host.advance(9_000)
        new.beat()
    assert heartbeat(bed, old, 1) is ErrorCode.unknown_member_id


def leave_all(bed: GroupTestBed, *members: tuple[str, str | None]) -> list[tuple[str, ErrorCode]]:
    """The response to a LeaveGroup of several members."""
    rows = tuple({"member_id": name, "group_instance_id": instance} for name, instance in members)
    left = bed.send(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=rows).response.members
    return [(row.member_id, row.error_code) for row in left]


def test_leave_group_removes_members_of_the_consumer_protocol(bed: GroupTestBed) -> None:
    consumer_join(bed, "a", instance_id="i")
    consumer_join(bed, "b")
    consumer_join(bed, "c", instance_id="k")
    unknown, none = ErrorCode.unknown_member_id, ErrorCode.none
    assert leave_all(bed, ("a", "j"), ("x", None), ("", "j")) == [("a", unknown), ("x", unknown), ("", unknown)]
    assert leave_all(bed, ("x", "i")) == [("x", ErrorCode.fenced_instance_id)]
    assert len(described(bed).members) == 3
    assert leave_all(bed, ("", "i"), ("b", None), ("b", None)) == [("", none), ("b", none), ("b", none)]
    assert [row.member_id for row in described(bed).members] == ["c"]
    assert leave_all(bed, ("c", "k")) == [("c", none)]
    assert described(bed).group_state == "Empty"
    assert leave_all(bed, ("c", "k")) == [("c", unknown)]


@pytest.mark.parametrize("instance", [None, "i"])
def test_last_consumer_member_that_joins_by_join_group_makes_the_group_classic_if_static(
    bed: GroupTestBed, instance: str | None
) -> None:
    consumer_join(bed, "b", instance_id=instance)
    joined = join(bed, "b", owning(0, 1, 2), group_instance_id=instance)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, 2)
    rows = bed.send(ApiKey.LIST_GROUPS, 5).response.groups
    kind = "consumer" if instance is None else "classic"
    assert [(row.group_state, row.group_type) for row in rows] == [("Stable", kind)]
    if instance is None:
        assert [row.member_type for row in described(bed).members] == [0]
        again = consumer_heartbeat(bed, "b", 2)
        assert (again.error_code, again.member_epoch) == (ErrorCode.none, 2)
        assert [row.member_type for row in described(bed).members] == [1]


def test_static_member_that_takes_over_a_classic_group_leaves_its_epoch(bed: GroupTestBed) -> None:
    classic = join(bed, group_instance_id="i")
    row = {"member_id": classic.member_id, "assignment": ALL}
    bed.send(
        ApiKey.SYNC_GROUP,
        5,
        group_id=GROUP,
        generation_id=1,
        member_id=classic.member_id,
        group_instance_id="i",
        protocol_type="consumer",
        protocol_name="range",
        assignments=(row,),
    )
    taken = consumer_join(bed, "b", instance_id="i")
    assert (taken.member_epoch, assigned(taken, bed)) == (1, {"orders": [0, 1, 2]})


@pytest.mark.parametrize("asked", [True, False])
def test_operations_that_a_client_may_do_to_a_group_are_shown_where_asked(bed: GroupTestBed, *, asked: bool) -> None:
    read, delete, describe, describe_configs, alter_configs = 3, 6, 8, 10, 11
    bits = (read, delete, describe, describe_configs, alter_configs)
    may, unasked = sum(1 << bit for bit in bits), -(2**31)
    flag = {"include_authorized_operations": asked}

    def classic(version: int, group_id: str) -> int:
        sent = bed.send(ApiKey.DESCRIBE_GROUPS, version, groups=(group_id,), **flag)
        operations: int = sent.response.groups[0].authorized_operations
        return operations

    stable_classic(bed)
    shown = may if asked else unasked
    assert [classic(version, GROUP) for version in (3, 5, 6)] == [shown] * 3
    assert [classic(version, MISSING) for version in (5, 6)] == [shown, unasked]
    consumer_join(bed, "new")
    sent = bed.send(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=(GROUP, ""), **flag)
    assert [row.authorized_operations for row in sent.response.groups] == [shown, unasked]


def test_a_classic_member_joins_again_when_there_is_a_new_assignment_not_before() -> None:
    """KIP-1263: within the interval the group has a new epoch and no new assignment."""
    bed = GroupTestBed(group_consumer_assignment_interval_ms=2_000)
    bed.lead(HOME)
    old = stable_classic(bed)
    consumer_join(bed, "new")
    assert heartbeat(bed, old, 1) is ErrorCode.rebalance_in_progress
    assert join(bed, old, owning(0, 1, 2)).generation_id == 1
    learnt = given(sync(bed, old, 1))
    assert join(bed, old, owning(*learnt)).generation_id == 2
    assert given(sync(bed, old, 2)) == learnt
    consumer_join(bed, "third")
    assert described(bed).group_epoch == 3
    assert heartbeat(bed, old, 2) is ErrorCode.none
    assert sync(bed, old, 2).error_code is ErrorCode.none
    bed.host.advance(2_000)
    assert consumer_heartbeat(bed, "third", 2).member_epoch == 3
    assert heartbeat(bed, old, 2) is ErrorCode.rebalance_in_progress
    assert sync(bed, old, 2).error_code is ErrorCode.rebalance_in_progress


def test_group_whose_assignor_keeps_user_data_is_not_upgraded(bed: GroupTestBed) -> None:
    member_id = join(bed).member_id
    join(bed, member_id)
    with_data = ALL[:-4] + struct.pack(">i", 2) + b"uu"
    assert sync(bed, member_id, 1, **{member_id: with_data}).error_code is ErrorCode.none
    response = consumer_join(bed, "new")
    assert response.error_code is ErrorCode.group_id_not_found
    assert "user data" in response.error_message
    assert heartbeat(bed, member_id, 1) is ErrorCode.none, "the classic group is as before"
