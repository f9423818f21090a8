"""Consumers with fetch sessions (KIP-227) and in racks (KIP-392), unmodified, on real brokers (A1, A4)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harrow import Cluster
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as Where
from kafka_python_admin import SOCKETS, admin_of
from raw_kafka import RawKafka
from topics_and_traces import create_placed
from waiting import until

pytestmark = SOCKETS
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {1: "north", 2: "south", 3: "south"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    racks = {node: {"broker.rack": rack} for node, rack in RACKS.items()}
    config = {"replica.selector.class": SELECTOR, "replica.lag.time.max.ms": 1_000, "min.insync.replicas": 1}
    with Cluster(brokers=3, config=config, broker_config=racks) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, nodes: list[int]) -> None:
    """Creates a topic with one partition on `nodes`; the first of them leads."""
    with admin_of(cluster) as admin:
        create_placed(admin, topic, nodes)


def produce(cluster: Cluster, topic: str, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


def preferred(cluster: Cluster, node: int, topic: str, rack: str, offset: int = 0) -> tuple[int, int, int, int]:
    """`(error, preferred read replica, bytes, high watermark)` of a consumer's fetch."""
    with RawKafka(cluster.brokers[node].port) as raw:
        found = raw.fetch(topic, 0, offset, version=11, rack=rack)
    size = len(found.records or b"")
    return int(found.error_code), found.preferred_read_replica, size, found.high_watermark


def test_a_leader_names_a_replica_in_the_consumers_rack_and_sends_no_records(cluster: Cluster) -> None:
    topic = "near"
    create(cluster, topic, [1, 2])
    produce(cluster, topic, 5)
    until(lambda: preferred(cluster, 1, topic, "south")[3] == 5)
    assert preferred(cluster, 1, topic, "south") == (0, 2, 0, 5)
    assert preferred(cluster, 2, topic, "south")[1] == -1, "a follower serves by itself"
    until(lambda: preferred(cluster, 2, topic, "south")[2] > 0, "the follower's high watermark")
    for rack in ("", "north", "east"):
        assert preferred(cluster, 1, topic, rack)[1] == -1
        assert preferred(cluster, 1, topic, rack)[2] > 0
    assert preferred(cluster, 1, topic, "south", offset=6)[:2] == (1, -1), "out of range"


def test_only_followers_in_the_isr_are_named(cluster: Cluster) -> None:
    topic = "in-sync"
    create(cluster, topic, [1, 2, 3])
    produce(cluster, topic, 5)
    until(lambda: preferred(cluster, 1, topic, "south")[1] in (2, 3))
    cluster.brokers[2].kill()
    try:
        until(lambda: preferred(cluster, 1, topic, "south")[1] == 3, "the dead one is not named")
        cluster.brokers[3].pause()
        try:
            produced_with_acks_1(cluster, topic)
            until(lambda: preferred(cluster, 1, topic, "south")[1] == -1, "3 left the ISR")
        finally:
            cluster.brokers[3].resume()
    finally:
        cluster.brokers[2].start()
    cluster.await_converged()
    until(lambda: preferred(cluster, 1, topic, "south")[1] in (2, 3), "both are back")


def produced_with_acks_1(cluster: Cluster, topic: str) -> None:
    with RawKafka(cluster.brokers[1].port) as raw:
        assert raw.produce(topic, 0, ["x"], acks=1).error_code == 0


def read_all(consumer: Any, count: int) -> list[int]:
    read: list[int] = []

    def poll() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.append(int(message.value()))
        return len(read) >= count

    until(poll, f"{count} records", timeout_s=60)
    return read


def test_a_consumer_in_a_rack_reads_every_record_once_while_its_replica_dies(cluster: Cluster) -> None:
    topic = "moving"
    create(cluster, topic, [1, 2])
    produce(cluster, topic, 50)
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "racks",
        "client.rack": "south",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert read_all(consumer, 50) == list(range(50))
        cluster.brokers[2].kill()
        try:
            produce(cluster, topic, 50, first=50)
            assert read_all(consumer, 50) == list(range(50, 100))
        finally:
            cluster.brokers[2].start()
        cluster.await_converged()
        produce(cluster, topic, 50, first=100)
        assert read_all(consumer, 50) == list(range(100, 150))


@pytest.mark.parametrize("again", ["restart", "leader"])
def test_sessions_of_a_consumer_survive_a_restart_and_a_leader_that_moves(cluster: Cluster, again: str) -> None:
    """The consumer has many partitions: its sessions name only those that change."""
    names = [f"{again}-{number}" for number in range(8)]
    for name in names:
        create(cluster, name, [2, 1, 3])
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": again,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(name, 0, 0) for name in names])
        produce(cluster, names[3], 20)
        assert read_all(consumer, 20) == list(range(20))
        if again == "restart":
            cluster.brokers[2].kill()
            cluster.brokers[2].start()
        else:
            cluster.brokers[2].terminate()
            cluster.brokers[2].start()
        cluster.await_converged()
        produce(cluster, names[3], 20, first=20)
        assert read_all(consumer, 20) == list(range(20, 40))
        produce(cluster, names[5], 5)
        assert read_all(consumer, 5) == list(range(5))
        message = consumer.poll(0.5)
        assert message is None or message.error() is not None, "nothing is read twice"


def test_kafka_python_reads_with_fetch_sessions(cluster: Cluster) -> None:
    topics = [f"python-{number}" for number in range(4)]
    for name in topics:
        create(cluster, name, [1, 2])
    consumer: Any = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
    )
    try:
        consumer.assign([Where(name, 0) for name in topics])
        read: dict[str, list[int]] = {name: [] for name in topics}

        def complete(count: int) -> bool:
            for rows in consumer.poll(timeout_ms=200).values():
                for row in rows:
                    read[row.topic].append(int(row.value))
            return all(len(rows) >= count for rows in read.values())

        for first in (0, 10, 20):
            for name in topics:
                produce(cluster, name, 10, first)
            until(partial(complete, first + 10), "the records")
        assert read == {name: list(range(30)) for name in topics}
        handlers = consumer._fetcher._session_handlers
        assert any(handler.next_metadata.session_id > 0 for handler in handlers.values())
    finally:
        consumer.close()
        gc.collect()
