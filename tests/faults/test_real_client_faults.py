"""Faults of clients on real brokers: a hijacked id, rebalances, a stuck member, isolated clients (K8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from faults_under_traffic import lines
from group_members import await_all, confluent, members, records, sticky
from harrow import Harrow, Topic, hijack_transactional_id, isolate_client, rebalance_storm, stuck_consumer
from harrow.faults import Fault, NemesisError
from harrow.harness.fault_clients import group_view
from kafka_python_admin import SOCKETS
from long_runs import long_run, some
from waiting import until

SETTINGS = {
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 30_000,
}
pytestmark = [pytest.mark.harrow(scope="session", config=SETTINGS), SOCKETS]
PARTITIONS = 6
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 300}
ASSIGNORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "range": (confluent, {**CLASSIC, "partition.assignment.strategy": "range"}),
    "roundrobin": (confluent, {**CLASSIC, "partition.assignment.strategy": "roundrobin"}),
    "cooperative-sticky": (confluent, {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}),
    "sticky": (sticky, {}),
    "consumer": (confluent, {"group.protocol": "consumer"}),
}
"""Each assignor meets a storm or a stuck member, and the new protocol both."""


def rows_of(harrow: Harrow, fault: Fault) -> dict[str, dict[str, Any]]:
    """Let one fault happen; its evidence by event."""
    with harrow.chaos(fault) as chaos:
        until(lambda: not chaos.running, "the fault is healed", timeout_s=90)
    assert chaos.effects == 1
    rows = [line for line in lines(harrow) if line["fault"] == fault.kind]
    assert [row["event"] for row in rows] == ["inject", "effect", "heal", "healed"]
    return {row["event"]: row["evidence"] for row in rows}


@pytest.mark.parametrize("assignor", some(["cooperative-sticky", "range", "consumer"], suite=1))
def test_every_member_rejoins_in_a_storm_and_gets_its_partitions_back(harrow: Harrow, assignor: str) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS)
    make, settings = ASSIGNORS[assignor]
    servers, group = harrow.bootstrap_servers, f"storm-{assignor}"
    open_member = make(servers, topic.name, group, settings)
    every = (0.5, 1.0) if assignor == "consumer" else (0.1, 0.3)
    with records(servers, topic.name, PARTITIONS), members(open_member, 2) as found:
        await_all(found, PARTITIONS)
        before = sum(len(member.assignments) for member in found)
        rows = rows_of(harrow, rebalance_storm(group, every_s=every, seconds=2.5))
        await_all(found, PARTITIONS, each=False)
    assert sum(len(member.assignments) for member in found) >= before + 2
    assert rows["healed"]["rebalances"] >= rows["effect"]["rebalances"] >= 1
    assert rows["healed"]["joined"] >= 1
    assert rows["healed"]["left"]


@pytest.mark.parametrize("assignor", some(["consumer", "sticky", "roundrobin"], suite=2))
def test_a_stuck_member_holds_partitions_until_it_leaves(harrow: Harrow, assignor: str) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS)
    make, settings = ASSIGNORS[assignor]
    servers, group = harrow.bootstrap_servers, f"stuck-{assignor}"
    open_member = make(servers, topic.name, group, settings)
    with records(servers, topic.name, PARTITIONS), members(open_member, 2) as found:
        await_all(found, PARTITIONS)
        # in the new protocol each former owner must first poll, revoke and send a heartbeat
        rows = rows_of(harrow, stuck_consumer(group, seconds=6 if assignor == "consumer" else 3))
        held = rows["effect"]["assigned"][topic.name]
        assert held
        await_all(found, PARTITIONS, each=False)
        read = [len(member.read) for member in found]
        until(lambda: sum(len(member.read) for member in found) > sum(read), "members read on")
    assert rows["healed"]["left"]


def transactional(harrow: Harrow, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def test_a_hijacked_id_fences_the_first_producer_in_its_transaction(harrow: Harrow) -> None:
    topic = harrow.topic("orders")
    first = transactional(harrow, "billing-1")
    first.begin_transaction()
    first.produce(topic.name, "lost")
    first.flush(20)
    with records(harrow.bootstrap_servers, topic.name, 1):
        rows = rows_of(harrow, hijack_transactional_id("billing-1"))
    assert rows["effect"]["transaction_before"] == "Ongoing"
    assert rows["effect"]["after"] != rows["effect"]["before"]
    assert rows["healed"]["transaction_after"] in ("Empty", "CompleteAbort")
    with pytest.raises(KafkaException) as failure:
        first.commit_transaction(20)
    assert failure.value.args[0].fatal()
    second = transactional(harrow, "billing-1")  # nothing of Harrow's is in the way
    second.begin_transaction()
    second.produce(topic.name, "kept")
    second.commit_transaction(20)


def failure_of(harrow: Harrow, topic: Topic, fault: Fault) -> str:
    with (
        records(harrow.bootstrap_servers, topic.name, 1),
        pytest.raises(NemesisError) as failure,
        harrow.chaos(fault) as chaos,
    ):
        until(lambda: not chaos.running, "the fault has failed", timeout_s=90)
    return str(failure.value)


@long_run
def test_an_id_that_no_producer_has_used_is_an_error_with_one_that_exists(harrow: Harrow) -> None:
    topic = harrow.topic("orders")
    transactional(harrow, "billing-2")
    said = failure_of(harrow, topic, hijack_transactional_id("biling-2"))
    assert "no producer has used the transactional id 'biling-2'; did you mean 'billing-2'" in said


def test_a_group_that_does_not_exist_is_an_error(harrow: Harrow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_view, "AWAIT_MEMBERS_MS", 1_000)
    topic = harrow.topic("orders")
    said = failure_of(harrow, topic, stuck_consumer("no-such-group"))
    assert "the cluster has no consumer group 'no-such-group'" in said


def test_an_isolated_client_gets_nothing_through_until_everything_is_delivered(harrow: Harrow) -> None:
    topic = harrow.topic("orders")
    settings: dict[str, Any] = {
        "bootstrap.servers": harrow.bootstrap_servers,
        "client.id": "orders-1",
        "linger.ms": 0,
        "message.timeout.ms": 30_000,
    }
    producer, acked = Producer(settings), list[str]()

    def send() -> None:
        if len(producer) < 10:
            producer.produce(topic.name, "late", on_delivery=lambda error, _: acked.append(str(error)))
        producer.poll(0.01)

    before: list[int] = []
    with records(harrow.bootstrap_servers, topic.name, 1), harrow.chaos(isolate_client("orders-*", seconds=1)) as chaos:
        while chaos.running:
            send()
            if chaos.effects and not before:
                before.append(len(acked))
    assert producer.flush(30) == 0
    assert set(acked) == {"None"}
    rows = {line["event"]: line for line in lines(harrow) if line["fault"] == "isolate_client"}
    held = rows["effect"]["evidence"]["held_bytes"]
    assert set(held) == {"client orders-1"}
    assert sum(held.values()) > 0
