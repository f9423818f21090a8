"""Targets resolve by role, by the seed, among brokers that run."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults import (
    Target,
    TargetError,
    all_brokers,
    broker,
    controller,
    follower,
    group_coordinator,
    isr_member,
    kill,
    leader,
    majority,
    minority,
    one,
    txn_coordinator,
)
from harrow.faults.system import ClusterSnapshot


@dataclass(frozen=True)
class Named:
    name: str


def partition(lead: int, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionView:
    return PartitionView(leader=lead, leader_epoch=3, isr=isr, replicas=(1, 2, 3))


VIEW = ClusterView(
    live=frozenset({1, 2, 3}),
    controller=3,
    topics={
        "orders": {0: partition(1), 1: partition(2, (2, 3)), 2: partition(-1)},
        "__transaction_state": {number: partition(1 + number % 3) for number in range(50)},
        "__consumer_offsets": {number: partition(1 + number % 3) for number in range(50)},
    },
)
SNAPSHOT = ClusterSnapshot(view=VIEW, brokers=(1, 2, 3), running=frozenset({1, 2, 3}))


def resolve(target: Target, snapshot: ClusterSnapshot = SNAPSHOT, seed: int = 1) -> tuple[int, ...]:
    return target.resolve(snapshot, random.Random(seed))


def test_a_partitions_roles() -> None:
    assert resolve(leader("orders", 0)) == (1,)
    assert resolve(leader(Named("orders"), 1)) == (2,)
    assert {resolve(follower("orders", 0), seed=s) for s in range(30)} == {(2,), (3,)}
    assert {resolve(isr_member("orders", 1), seed=s) for s in range(30)} == {(2,), (3,)}


def test_without_a_partition_the_seed_draws_one() -> None:
    snapshot = replace(SNAPSHOT, view=replace(VIEW, topics={"t": {0: partition(1), 1: partition(2)}}))
    assert {resolve(leader("t"), snapshot, seed) for seed in range(30)} == {(1,), (2,)}
    assert resolve(leader("t"), snapshot, 7) == resolve(leader("t"), snapshot, 7)


def test_cluster_wide_roles() -> None:
    assert resolve(controller()) == (3,)
    assert resolve(broker(2)) == (2,)
    assert {resolve(one, seed=s) for s in range(30)} == {(1,), (2,), (3,)}
    assert len(resolve(minority)) == 1
    assert len(resolve(majority)) == 2
    assert resolve(all_brokers) == (1, 2, 3)


def test_a_groups_coordinator_leads_its_partition() -> None:
    # "test".hashCode() is 3556498, modulo 50: 48
    assert resolve(group_coordinator("test")) == (1 + 48 % 3,)


def test_the_coordinator_of_a_transactional_id_leads_its_partition() -> None:
    assert resolve(txn_coordinator("test")) == (1 + 48 % 3,)
    assert str(txn_coordinator("test")) == "txn_coordinator('test')"
    before = replace(SNAPSHOT, view=replace(VIEW, topics={"orders": {0: partition(1)}}))
    with pytest.raises(TargetError):
        resolve(txn_coordinator("test"), before)


@pytest.mark.parametrize(
    ("target", "snapshot"),
    [
        (leader("orders", 2), SNAPSHOT),
        (leader("orders", 9), SNAPSHOT),
        (leader("nothing"), SNAPSHOT),
        (broker(9), SNAPSHOT),
        (controller(), replace(SNAPSHOT, view=replace(VIEW, controller=None))),
        (controller(), replace(SNAPSHOT, running=frozenset({1, 2}))),
        (controller(), replace(SNAPSHOT, disturbed=frozenset({3}))),
        (majority, replace(SNAPSHOT, running=frozenset({1}))),
    ],
)
def test_role_without_a_broker_is_refused_with_the_reason(target: Target, snapshot: ClusterSnapshot) -> None:
    with pytest.raises(TargetError, match=target.role):
        resolve(target, snapshot)


@pytest.mark.parametrize(
    "target",
    [
        leader("orders"),
        leader("orders", 0),
        follower("t"),
        controller(),
        one,
        broker(3),
        group_coordinator("g"),
        txn_coordinator("x"),
    ],
)
def test_targets_are_values_and_json(target: Target) -> None:
    assert Target.from_json(target.to_json()) == target
    assert hash(target) == hash(Target.from_json(target.to_json()))


def test_value_that_is_no_target_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"write leader\(…\)"):
        kill(leader)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
    with pytest.raises(ConfigError, match="expected a topic"):
        leader(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - the mistake
    with pytest.raises(ConfigError, match="partition from 0 up"):
        leader("orders", -1)
    with pytest.raises(ConfigError, match="did you mean partition"):
        Target.from_json({"role": "leader", "partitoin": 1})
    assert kill(2).target == broker(2)
