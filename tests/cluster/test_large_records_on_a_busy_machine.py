"""Large records at full speed: a leader is not far ahead of its followers, so the ISR stays whole (C4, C5).

The client is librdkafka without idempotence and with acks=all. It pipelines as many requests as it has records, so a
refused record would be in the log twice. The long test has no free core: as many busy processes as there are cores,
which end by themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster.supervisor import Cluster
from long_runs import long_run
from topics_and_traces import trace_events
from waiting import until

SMALL, LARGE = 10_000, 500_000
RECORDS = 400
LOAD_S = 120
BUSY = f"import time\nend = time.monotonic() + {LOAD_S}\nwhile time.monotonic() < end: pass"


@pytest.fixture
def load() -> Iterator[None]:
    """Keep every core busy during a test."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@long_run
@pytest.mark.usefixtures("load")
def test_a_producer_of_large_records_on_a_busy_machine_is_never_refused() -> None:
    with Cluster(brokers=3) as cluster:
        create(cluster)
        errors = send(cluster, [SMALL] * RECORDS + [LARGE] * RECORDS)
        assert errors == []
        end = end_of_log(cluster)
        assert end == 2 * RECORDS, f"{end - 2 * RECORDS} records are in the log twice"
        for node in cluster.brokers:
            rows = trace_events(cluster, node, "partition.isr")
            assert [row for row in rows if row["topic"] == "large"] == []
            assert trace_events(cluster, node, "broker.session-expired") == []


def test_a_leader_appends_no_more_large_records_than_one_fetch_of_a_follower_brings() -> None:
    patient = {"replica.lag.time.max.ms": 60_000, "zookeeper.session.timeout.ms": 60_000}
    with Cluster(brokers=3, config=patient) as cluster:
        create(cluster)
        leader = leader_of(cluster)
        followers = [broker for node, broker in cluster.brokers.items() if node != leader]
        followers[0].pause()
        producer, other = producer_of(cluster), producer_of(cluster)
        for _ in range(40):
            producer.produce("large", bytes(LARGE), partition=0)
        until(lambda: leo(cluster, leader) == 2, timeout_s=30)
        other.produce("large", b"small", partition=0)  # a connection of its own is read all the time
        until(lambda: leo(cluster, leader) > 2, timeout_s=30)
        assert leo(cluster, leader) == 3
        followers[0].resume()
        assert producer.flush(60) == other.flush(60) == 0
        assert end_of_log(cluster) == 41


def create(cluster: Cluster) -> None:
    """Create the topic with a replica on each broker."""
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("large", 1, 3)])["large"].result(30)
    cluster.await_full_isr()  # so that each broker has its replica


def leader_of(cluster: Cluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return int(admin.list_topics("large", timeout=30).topics["large"].partitions[0].leader)


def leo(cluster: Cluster, node: int) -> int:
    rows = cluster.state()[node]
    return next(int(row["leo"]) for row in rows if row["topic"] == "large")


def producer_of(cluster: Cluster) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})


def send(cluster: Cluster, sizes: list[int]) -> list[str]:
    """Send a record of each size, as fast as the client takes them; returns the errors of deliveries."""
    producer = producer_of(cluster)
    errors: list[str] = []

    def delivered(error: Any, _: object) -> None:
        if error is not None:
            errors.append(str(error))

    deadline = time.monotonic() + LOAD_S
    for size in sizes:
        while True:
            try:
                producer.produce("large", bytes(size), partition=0, on_delivery=delivered)
                break
            except BufferError:
                assert time.monotonic() < deadline, "the client's queue stays full"
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(LOAD_S) == 0
    return errors


def end_of_log(cluster: Cluster) -> int:
    """The end of the partition's log, as its leader says it."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition("large", 0), timeout=30)[1])
    finally:
        consumer.close()
