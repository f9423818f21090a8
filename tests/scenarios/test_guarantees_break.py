"""The verdict detects real violations: directed schedules that lose or duplicate, every time (H2, H3, H5, M3)."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer
from harrow import Harrow, isolate, leader, lose_response
from harrow.faults import Schedule, ScheduledFault, new_leader
from harrow.harness.errors import VerdictError
from waiting import until

PATIENT: dict[str, Any] = {
    "log_level": 0,
    "linger.ms": 0,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "message.timeout.ms": 60_000,
}


def produce(producer: Producer, topic: str, count: int, prefix: str) -> int:
    """Produces `count` records to partition 0, one after another; returns how many were acknowledged."""
    acknowledged = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    for number in range(count):
        producer.produce(topic, f"{prefix} {number}", key="k", partition=0, on_delivery=delivered)
        producer.flush(30)
    return acknowledged


def test_isolating_the_leader_with_acks_1_loses_records(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "acks": "1", **PATIENT})
    assert produce(producer, orders.name, 20, "before") == 20
    # until another broker leads: on Kafka the isolated one may be the controller, too, so that a quorum votes first
    cut_off = ScheduledFault(
        id="1", fault=isolate(leader(orders, 0)), trigger="traffic", until=(new_leader(orders, 0, "1"),)
    )
    with harrow.chaos(schedule=Schedule(steps=(cut_off,), seed=harrow.seed)) as chaos:
        # The isolated leader still acknowledges; after healing it truncates to the new leader's log.
        while not chaos.effects:
            produce(producer, orders.name, 1, "during")
        assert produce(producer, orders.name, 50, "alone") == 50
        while chaos.running:
            produce(producer, orders.name, 1, "later")
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="no-loss")
    assert found.value.verdict.status.value == "invalid"
    assert "lost-write" in found.value.verdict.anomaly_counts
    assert "lost-write" in str(found.value)


def leave_only_the_follower(harrow: Harrow, producer: Producer, topic: str) -> tuple[int, int]:
    """Lets the leader append alone and die, and restarts its follower, which died before: (leader, follower)."""
    cluster = harrow.cluster
    assert produce(producer, topic, 20, "before") == 20
    first = cluster.leader(topic, 0)
    assert first is not None
    (follower,) = {node for node in cluster.isr(topic, 0) if node != first}
    cluster.brokers[follower].kill()
    until(lambda: cluster.isr(topic, 0) == [first])
    assert produce(producer, topic, 50, "alone") == 50
    cluster.brokers[first].kill()
    until(lambda: cluster.leader(topic, 0) is None)
    cluster.brokers[follower].start()
    return first, follower


TWO_MAY_BE_DEAD = pytest.mark.harrow(brokers=5)
"""The quorum of an Apache Kafka needs a majority of its nodes."""


@TWO_MAY_BE_DEAD
def test_an_unclean_election_loses_records(harrow: Harrow) -> None:
    config = {"unclean.leader.election.enable": True, "min.insync.replicas": 1}
    orders = harrow.topic("orders", replication_factor=2, config=config)
    cluster = harrow.cluster
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "acks": "all", **PATIENT})
    first, follower = leave_only_the_follower(harrow, producer, orders.name)
    until(lambda: cluster.leader(orders.name, 0) == follower)
    cluster.brokers[first].start()
    assert produce(producer, orders.name, 20, "after") == 20
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="no-loss")
    assert found.value.verdict.status.value == "invalid"
    assert "lost-write" in found.value.verdict.anomaly_counts


@TWO_MAY_BE_DEAD
def test_a_clean_election_waits_for_the_isr_and_loses_nothing(harrow: Harrow) -> None:
    """The same outage without unclean election: the partition is offline until its ISR returns."""
    orders = harrow.topic("orders", replication_factor=2, config={"min.insync.replicas": 1})
    cluster = harrow.cluster
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "acks": "all", **PATIENT})
    first, follower = leave_only_the_follower(harrow, producer, orders.name)
    until(lambda: follower in cluster.describe().live)
    assert cluster.leader(orders.name, 0) is None
    cluster.brokers[first].start()
    assert produce(producer, orders.name, 20, "after") == 20
    harrow.verify(orders, guarantee="no-loss")


@pytest.mark.parametrize("idempotent", [False, True], ids=["without-idempotence", "with-idempotence"])
def test_losing_a_response_duplicates_records_only_without_idempotence(harrow: Harrow, idempotent: bool) -> None:
    orders = harrow.topic("orders")
    settings = {"bootstrap.servers": harrow.bootstrap_servers, "acks": "all", "enable.idempotence": idempotent}
    producer = Producer({**settings, **PATIENT})
    with harrow.chaos(lose_response("Produce", nth=3, target=leader(orders, 0))) as chaos:
        sent = 0
        while chaos.running and sent < 2000:
            sent += produce(producer, orders.name, 1, f"order {sent}")
        produce(producer, orders.name, 20, "later")
    if idempotent:
        harrow.verify(orders, guarantee="exactly-once")
        return
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="exactly-once")
    assert found.value.verdict.status.value == "invalid"
    assert "duplicate" in found.value.verdict.anomaly_counts
