"""Every fault of links between brokers on Apache Kafka: its effect, its healing, and what it does to Kafka (J2, K2)."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from confluent_kafka import Producer
from harrow import Harrow, Topic, VerdictError, controller, cut, follower, isolate, kill, leader, reset, slow_link
from harrow.cluster.errors import ClusterError
from harrow.faults import Fault
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_reference import JARS
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Harrow]:
    """A `Harrow` on Apache Kafka."""
    with Harrow(tmp_path / "run", seed=5, clusters=KafkaClusters(find_kafka(str(JARS)))) as harrow:
        yield harrow


@contextmanager
def traffic(harrow: Harrow, topic: Topic, **config: object) -> Generator[list[str]]:
    """Produce until the block ends; yields what was acknowledged."""
    settings: dict[str, object] = {
        "bootstrap.servers": harrow.bootstrap_servers,
        "linger.ms": 1,
        "acks": "all",
        **config,
    }
    producer = Producer(settings)  # pyright: ignore[reportArgumentType] - plain settings
    acked: list[str] = []
    stop = threading.Event()

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acked.append(message.value().decode())

    def send() -> None:
        number = 0
        while not stop.wait(0.005):
            number += 1
            producer.produce(topic.name, str(number), on_delivery=delivered)
            producer.poll(0)

    thread = threading.Thread(target=send, name="traffic")
    thread.start()
    try:
        yield acked
    finally:
        stop.set()
        thread.join(30)
        assert producer.flush(60) == 0


def rows_of(harrow: Harrow) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (harrow.folder / "faults.jsonl").read_text().splitlines()]


def run(harrow: Harrow, topic: Topic, *faults: Fault) -> list[dict[str, dict[str, Any]]]:
    """Inject the faults in turn under traffic with acks=all; the rows of each by event."""
    with traffic(harrow, topic), harrow.chaos(*faults) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=300)
    assert chaos.effects == len(faults)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows_of(harrow):
        found.setdefault(row["id"], {})[row["event"]] = row
    for rows in found.values():
        assert list(rows) == ["inject", "effect", "heal", "healed"]
    return list(found.values())


def test_every_fault_of_links_is_proved_and_healed_and_loses_nothing(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=2)
    faults = (
        isolate(leader(orders, 0), seconds=1, heals_by="deliver"),
        isolate(follower(orders, 0), seconds=1, heals_by="reset", clients=True),
        cut(leader(orders, 0), direction="in", seconds=1),
        cut(leader(orders, 0), direction="out", seconds=1, heals_by="reset"),
        cut(leader(orders, 0), direction="out", peers="any", seconds=1),
        slow_link(leader(orders, 0), delay_ms=100, seconds=1),
        reset(leader(orders, 0)),
    )
    for fault, rows in zip(faults, run(kafka, orders, *faults), strict=True):
        evidence = rows["effect"]["evidence"]
        (node,) = rows["inject"]["targets"]
        if fault.kind == "reset":
            assert evidence["reset"][str(node)] > 0
            continue
        links = evidence["links"][str(node)]
        peers = {rule["peers"] for rule in links["rules"]} - {"client *"}
        others = {f"broker {other}" for other in kafka.cluster.brokers if other != node}
        assert peers < others if "any" in str(fault) else peers == others
        assert not rows["healed"]["evidence"]["links"][str(node)]["rules"]
    assert kafka.verify(orders, guarantee="no-loss").valid


def test_an_isolated_leader_and_an_isolated_controller_are_replaced(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    before = kafka.cluster.describe()
    led = before.topics["orders"][0].leader
    (rows,) = run(kafka, orders, isolate(leader(orders, 0), seconds=6))
    after = kafka.cluster.describe()
    assert rows["inject"]["targets"] == [led]
    assert after.topics["orders"][0].leader_epoch > before.topics["orders"][0].leader_epoch
    before = after
    run(kafka, orders, isolate(controller(), seconds=6))
    assert kafka.cluster.describe().controller_epoch > before.controller_epoch
    assert kafka.verify(orders, guarantee="no-loss").valid


def test_a_leader_that_is_cut_off_acknowledges_alone_and_the_records_are_lost(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    led = kafka.cluster.leader("orders", 0)
    assert led is not None
    others = [f"broker {node}" for node in kafka.cluster.brokers if node != led]
    with traffic(kafka, orders, acks=1) as acked:
        until(lambda: len(acked) > 20, "records are acknowledged")
        kafka.cluster.control(led, "links.block", peers=others)
        before = len(acked)
        another = lambda: kafka.cluster.leader("orders", 0) not in (None, led)  # noqa: E731
        # without a controller no broker says who leads
        until(another, "another leader", amid=(ClusterError,))
        assert len(acked) > before, "the leader that is cut off acknowledges"
        kafka.cluster.control(led, "links.heal", mode="reset")
    with pytest.raises(VerdictError) as found:
        kafka.verify(orders, guarantee="no-loss")
    assert "lost-write" in found.value.verdict.anomaly_names()


def test_a_node_that_dies_while_it_is_cut_off_has_no_rule_that_outlives_the_fault(kafka: Harrow) -> None:
    orders = kafka.topic("orders", partitions=1)
    faults = (isolate(follower(orders, 0), seconds=4), kill(follower(orders, 0), seconds=0.5))
    with traffic(kafka, orders), kafka.chaos(*faults, cap=2) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=300)
    assert all(not kafka.cluster.control(node, "links")["rules"] for node in kafka.cluster.brokers)
    assert kafka.verify(orders, guarantee="no-loss").valid
