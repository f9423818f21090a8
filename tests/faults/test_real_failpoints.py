"""Failpoints that only real brokers reach in the suite: topics that are deleted, offsets, removed segments (K6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faults_under_traffic import run
from harrow import Harrow, failpoint_at_start, leader
from harrow.cluster.errors import ClusterError
from waiting import until

NAMES = ("controller.before-topic-removal", "group.before-offsets", "group.after-offsets", "log.before-segment-removal")
SETTINGS = {"internal.segment.bytes": 20_000, "log.retention.check.interval.ms": 100}


def fired(harrow: Harrow) -> set[str]:
    """The failpoints that acted on some broker."""
    found: set[str] = set()
    for node in harrow.cluster.brokers:
        rows = harrow.cluster.control(node, "rules.list", kind="failpoint")["rules"]
        found |= {row["name"] for row in rows if row["fired"]}
    return found


@pytest.mark.harrow(config=SETTINGS)
def test_operations_of_clients_reach_the_failpoints(harrow: Harrow) -> None:
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = harrow.topic("orders", partitions=1)
    for node in harrow.cluster.brokers:
        for name in NAMES:
            harrow.cluster.control(node, "rules.add", kind="failpoint", name=name, action="delay", delay_ms=1)
    producer = harrow.producer()
    for number in range(30):
        producer.produce(topic.name, b"%d" % number * 1_000)
        producer.flush(30)
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": harrow.bootstrap_servers}
    consumer: Any = Consumer({**settings, "group.id": "billing", "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(topic.name, 0, 5)], asynchronous=False)
    finally:
        consumer.close()
    admin: Any = AdminClient(settings)
    for done in admin.delete_records([TopicPartition(topic.name, 0, 29)]).values():
        done.result(30)
    until(lambda: "log.before-segment-removal" in fired(harrow), "removed segments")
    for done in admin.delete_topics([topic.name]).values():
        done.result(30)
    until(lambda: fired(harrow) == set(NAMES), f"all of {NAMES}")


def test_an_unknown_failpoint_is_refused(harrow: Harrow) -> None:
    with pytest.raises(ClusterError, match=r"no failpoint 'log\.after-lunch'"):
        harrow.cluster.control(1, "rules.add", kind="failpoint", name="log.after-lunch", action="crash")


@pytest.mark.harrow(config={"harrow.power.loss": True, "log.flush.interval.messages": 1})
def test_two_starts_in_a_row_lose_their_power_while_they_recover(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    place = "recovery.after-segment"
    fault = failpoint_at_start(place, leader(topic, 0), times=2, power_loss=True, seconds=0.2)
    rows = run(harrow, topic, fault)
    [node] = rows["inject"]["targets"]
    broker = harrow.cluster.brokers[node]
    assert broker.incarnations == 4
    lines = (broker.folder / "trace.jsonl").read_text().splitlines()
    events = [row for line in lines if (row := json.loads(line))["event"] == "failpoint.fired"]
    assert [(row["name"], row["action"]) for row in events] == [(place, "crash")] * 2


def test_a_broker_is_stopped_before_it_registers(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    fault = failpoint_at_start("broker.before-registration", leader(topic, 0), "stop", seconds=0.5)
    rows = run(harrow, topic, fault)
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["starts"][str(node)]["hits"] == 1
    assert harrow.cluster.brokers[node].incarnations == 2
