"""Operations on the cluster as faults, on real brokers under real traffic (K7)."""

from __future__ import annotations

import pytest
from faults_under_traffic import lines, run
from harrow import (
    Harrow,
    add_broker,
    controller,
    elect_controller,
    expire_session,
    leader,
    move_leader,
    reassign,
    remove_broker,
    unclean_election,
    zombie_controller,
)
from harrow.harness.errors import VerdictError


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
    # Not `after.leader`: five seconds after its election a controller gives leadership back to preferred leaders.
    assert rows["effect"]["evidence"]["leader"] in set(before.isr) - {before.leader}
    assert after.leader_epoch > before.leader_epoch
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


def test_an_unclean_election_loses_records_and_the_verdict_names_it(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    fault = unclean_election(topic, 0, behind_s=0.5, seconds=0.3)
    producer = harrow.producer(enable_idempotence=False, acks="all", message_timeout_ms=60_000)
    sent = 0
    with harrow.chaos(fault) as chaos:
        while chaos.running:
            if len(producer) < 50:
                sent += 1
                producer.produce(topic.name, str(sent))
            producer.poll(0.005)
    producer.flush(60)
    rows = {line["event"]: line for line in lines(harrow)}
    evidence = rows["effect"]["evidence"]
    assert evidence["leader"] not in evidence["last_isr"]
    with pytest.raises(VerdictError) as found:
        harrow.verify(topic, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_counts
    cause = found.value.verdict.causes["lost-write"][0]
    assert f"by an unclean election: it was outside the ISR {evidence['last_isr']}" in cause


@pytest.mark.harrow(config={"offsets.topic.num.partitions": 3})
def test_a_broker_joins_takes_replicas_over_and_leaves(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    before = harrow.cluster.describe().topics["orders"]
    rows = run(harrow, topic, add_broker(topic))
    assert rows["effect"]["evidence"] == {"broker": 4, "live": [1, 2, 3, 4], "moves_left": 0}
    assert rows["healed"]["evidence"] == {"broker": 4, "live": [1, 2, 3]}
    assert sorted(harrow.cluster.brokers) == [1, 2, 3]
    after = harrow.cluster.describe().topics["orders"]
    assert {n: row.replicas for n, row in after.items()} == {n: row.replicas for n, row in before.items()}
    folder = harrow.cluster.brokers[1].folder.parent / "broker-4"
    events = (folder / "trace.jsonl").read_text()
    assert '"event":"partition.follower"' in events or '"event":"partition.leader"' in events


@pytest.mark.harrow(brokers=4, config={"offsets.topic.num.partitions": 3})
def test_a_broker_leaves_in_order_and_comes_back_with_its_replicas(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2, replication_factor=3)
    before = harrow.cluster.describe().topics["orders"]
    rows = run(harrow, topic, remove_broker(leader(topic, 0), seconds=0.3))
    [node] = rows["inject"]["targets"]
    replicas = rows["effect"]["evidence"]["replicas"]
    assert replicas
    assert all(node not in moved and len(moved) == 3 for moved in replicas.values())
    after = harrow.cluster.describe().topics["orders"]
    assert {n: row.replicas for n, row in after.items()} == {n: row.replicas for n, row in before.items()}
    assert harrow.cluster.brokers[node].incarnations == 2
