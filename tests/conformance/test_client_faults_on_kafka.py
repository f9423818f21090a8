"""Faults of clients and of programs on Apache Kafka, behind the proxy: the same requests, the same effects (J2, K8)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from confluent_kafka import KafkaException, Producer
from faults_under_traffic import lines
from group_members import await_all, confluent, members, records
from harrow import Harrow, hijack_transactional_id, isolate_client, kill_program, rebalance_storm, stuck_consumer
from harrow.faults import Fault
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_reference import JARS
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
PARTITIONS = 4
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}
CLASSIC = {"group.protocol": "classic", "heartbeat.interval.ms": 300}
GROUPS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
WORKER = """
import signal, sys
from confluent_kafka import Consumer

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "worker", "client.id": "worker",
                     "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000})
consumer.subscribe(["orders"])
while not stopped:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        consumer.commit(message, asynchronous=False)
        print("committed", flush=True)
consumer.close()
"""


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Harrow]:
    """A `Harrow` on Apache Kafka."""
    clusters = KafkaClusters(find_kafka(str(JARS)))
    with Harrow(tmp_path / "run", seed=5, config=SETTINGS, clusters=clusters) as harrow:
        yield harrow


def healed(harrow: Harrow, *faults: Fault) -> list[dict[str, Any]]:
    """Let the faults happen, one after the other; the evidence of their effects and healings."""
    with harrow.chaos(*faults) as chaos:
        until(lambda: not chaos.running, "the faults are healed", timeout_s=180)
    assert chaos.effects == len(faults)
    rows = lines(harrow)[-4 * len(faults) :]
    return [row["evidence"] for row in rows if row["event"] in ("effect", "healed")]


def a_hijacked_id_is_fenced(kafka: Harrow) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "billing"}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", "lost")
    producer.flush(20)
    effect, after = healed(kafka, hijack_transactional_id("billing"))
    assert effect["transaction_before"] == "Ongoing"
    assert effect["after"] != effect["before"]
    assert after["transaction_after"] in ("Empty", "CompleteAbort")
    with pytest.raises(KafkaException) as failure:
        producer.commit_transaction(20)
    assert failure.value.args[0].fatal()


def groups_are_disturbed(kafka: Harrow) -> None:
    for group, settings in GROUPS.items():
        open_member = confluent(kafka.bootstrap_servers, "orders", group, settings)
        every = (0.5, 1.0) if group == "consumer" else (0.1, 0.3)
        with members(open_member, 2) as found:
            await_all(found, PARTITIONS)
            before = sum(len(member.assignments) for member in found)
            storm, calm, stuck, left = healed(
                kafka, rebalance_storm(group, every_s=every, seconds=3), stuck_consumer(group, seconds=2)
            )
            await_all(found, PARTITIONS)
        assert calm["rebalances"] >= storm["rebalances"] >= 1
        assert calm["left"]
        assert left["left"]
        assert stuck["assigned"]["orders"]
        assert sum(len(member.assignments) for member in found) >= before + 2


def a_client_is_isolated(kafka: Harrow) -> None:
    effect, _ = healed(kafka, isolate_client("feed", seconds=0.5))
    assert set(effect["held_bytes"]) == {"client feed"}


def a_program_is_killed_before_its_commit(kafka: Harrow, worker: Path) -> None:
    worker.write_text(WORKER)
    program = kafka.program("worker", [sys.executable, str(worker), "{bootstrap}"])
    effect, _ = healed(kafka, kill_program("worker", before="OffsetCommit", nth=3, client="worker"))
    (request,) = effect["request"].values()
    assert request["action"] == "drop"
    assert program.starts == 2
    before = len(program.output.read_text().splitlines())
    until(lambda: len(program.output.read_text().splitlines()) > before, "it commits again")
    assert program.stop() == 0


def test_faults_of_clients_act_on_kafka(kafka: Harrow, tmp_path: Path) -> None:
    kafka.topic("orders", partitions=PARTITIONS)
    steps: list[Callable[[], None]] = [
        lambda: a_hijacked_id_is_fenced(kafka),
        lambda: groups_are_disturbed(kafka),
        lambda: a_client_is_isolated(kafka),
        lambda: a_program_is_killed_before_its_commit(kafka, tmp_path / "worker.py"),
    ]
    with records(kafka.bootstrap_servers, "orders", PARTITIONS):
        for step in steps:
            step()
    assert kafka.verify("orders", guarantee="no-loss").valid
