"""Operations on the cluster as faults, on real brokers under real traffic (K7)."""

from __future__ import annotations

import pytest
from faults_under_traffic import run
from harrow import (
    Harrow,
    controller,
    elect_controller,
    expire_session,
    move_leader,
    reassign,
    zombie_controller,
)


def test_a_forced_election_has_a_later_epoch(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.describe().controller_epoch
    rows = run(harrow, topic, elect_controller())
    assert rows["effect"]["evidence"]["controller_epoch"] > before
    assert harrow.cluster.describe().controller_epoch > before


def test_a_zombie_controller_finds_another_controller(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.controller_id()
    rows = run(harrow, topic, zombie_controller(seconds=0.3))
    assert rows["inject"]["targets"] == [before]
    assert rows["effect"]["evidence"]["controller"] not in (None, before)
    assert harrow.cluster.controller_id() not in (None, before)


def test_a_broker_whose_session_expires_registers_again_and_lives_on(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    pids = {node: broker.pid for node, broker in harrow.cluster.brokers.items()}
    epoch = harrow.cluster.describe().controller_epoch
    rows = run(harrow, topic, expire_session(controller()))
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["sessions_ended"] == {str(node): 1}
    assert {node: broker.pid for node, broker in harrow.cluster.brokers.items()} == pids
    assert harrow.cluster.describe().controller_epoch > epoch


def test_a_leader_moves_to_another_member_of_the_isr(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, move_leader(topic, 0))
    after = harrow.cluster.describe().topics["orders"][0]
    assert after.leader == rows["effect"]["evidence"]["leader"] != before.leader
    assert after.replicas == before.replicas


@pytest.mark.harrow(brokers=4)
def test_a_replica_moves_to_another_broker_and_back(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1, replication_factor=3)
    before = harrow.cluster.describe().topics["orders"][0]
    rows = run(harrow, topic, reassign(topic, 0, seconds=0.2))
    moved = rows["effect"]["evidence"]["replicas"]
    assert len(set(moved) - set(before.replicas)) == 1
    after = harrow.cluster.describe().topics["orders"][0]
    assert after.replicas == before.replicas
    assert set(after.isr) == set(before.replicas)
