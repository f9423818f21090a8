"""B11 and K3 on real brokers: what was acknowledged after an fsync is found after the power is lost, at any point.

And the other way round: without an fsync, a power loss of all replicas does lose acknowledged records, so that
these tests can fail. Disk errors take a folder offline and nothing else.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster import Cluster
from harrow.cluster.errors import ClusterError
from long_runs import LONG

DEADLINE_S = 60


def no_word(_error: object) -> None:
    """Dead brokers are what these tests are about."""


QUIET: dict[str, Any] = {"log_level": 0, "error_cb": no_word}


def create(cluster: Cluster, topic: str, partitions: int, replicas: int, **config: object) -> None:
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    new = NewTopic(topic, partitions, replicas, config=settings)
    for future in admin.create_topics([new]).values():
        future.result(DEADLINE_S)


class Traffic:
    """A producer with acks=all that never stops, and what was acknowledged to it."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self.acked: set[bytes] = set()
        self.sent = 0
        self.changed = threading.Condition()
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
            }
        )
        self._thread = threading.Thread(target=self._run, name="traffic")

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < 200:
                self.sent += 1
                value = f"{self.sent}".encode().ljust(500, b".")
                self._producer.produce(self.topic, value, on_delivery=self._delivered)
            self._producer.poll(0.001)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            with self.changed:
                self.acked.add(message.value())
                self.changed.notify_all()

    def await_more(self, count: int) -> None:
        with self.changed:
            wanted = len(self.acked) + count
            came = self.changed.wait_for(lambda: len(self.acked) >= wanted, DEADLINE_S)
        assert came, self._cluster.describe().topics[self.topic]

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        self._producer.flush(DEADLINE_S)
        self._producer.purge()
        self._producer.flush(DEADLINE_S)


def read_all(cluster: Cluster, topic: str, partitions: int) -> list[bytes]:
    """Every record from the beginning to the high watermarks."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[bytes] = []
        ended: set[int] = set()
        deadline = time.monotonic() + DEADLINE_S
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{len(found)} records and no end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found.append(message.value() or b"")
            else:
                ended.add(message.partition() or 0)
        return found
    finally:
        consumer.close()


@contextmanager
def cluster_of(brokers: int, **config: object) -> Generator[Cluster]:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    with Cluster(brokers=brokers, config={"harrow.power.loss": True, **settings}) as cluster:
        yield cluster


def test_one_broker_that_fsyncs_loses_nothing_at_any_point() -> None:
    rng = random.Random(1)
    with cluster_of(1, internal_segment_bytes=200_000) as cluster:
        create(cluster, "orders", 2, 1, flush_messages=1)
        lost: list[dict[str, int]] = []
        with Traffic(cluster, "orders") as traffic:
            for round_ in range(4 if LONG else 2):
                traffic.await_more(rng.randint(1, 400))
                lost.append(cluster.brokers[1].lose_power(seed=round_, keep=rng.choice((None, 0.0))))
                cluster.brokers[1].start()
            traffic.await_more(1)
        found = read_all(cluster, "orders", 2)
        assert traffic.acked <= set(found), f"{len(traffic.acked - set(found))} of them are lost"
        assert sum(broker["unsynced_bytes"] for broker in lost) > 0


def test_three_brokers_that_fsync_lose_nothing_when_all_lose_power() -> None:
    rng = random.Random(2)
    with cluster_of(3, min_insync_replicas=2, unclean_leader_election_enable=True) as cluster:
        create(cluster, "orders", 2, 3, flush_messages=1)
        with Traffic(cluster, "orders") as traffic:
            for round_ in range(2 if LONG else 1):
                traffic.await_more(rng.randint(1, 300))
                for broker in cluster.brokers.values():
                    broker.kill()
                for node, broker in cluster.brokers.items():
                    broker.lose_power(seed=f"{round_}/{node}", keep=0.0)
                for broker in cluster.brokers.values():
                    broker.start()
            traffic.await_more(1)
        cluster.await_converged(DEADLINE_S)
        found = read_all(cluster, "orders", 2)
        assert traffic.acked <= set(found), f"{len(traffic.acked - set(found))} of them are lost"


def test_without_an_fsync_the_same_power_loss_does_lose() -> None:
    with cluster_of(3, min_insync_replicas=2) as cluster:
        create(cluster, "orders", 1, 3)
        with Traffic(cluster, "orders") as traffic:
            traffic.await_more(200)
        for broker in cluster.brokers.values():
            broker.kill()
        lost = [broker.lose_power(seed=1, keep=0.0) for broker in cluster.brokers.values()]
        for broker in cluster.brokers.values():
            broker.start()
        cluster.await_full_isr(DEADLINE_S)
        assert all(broker["lost_bytes"] > 0 for broker in lost)
        assert len(set(read_all(cluster, "orders", 1)) & traffic.acked) < len(traffic.acked)


def test_power_loss_without_a_journal_is_refused() -> None:
    with Cluster(brokers=1) as cluster:
        assert not (cluster.folder / "broker-1" / "unsynced").exists()
        with pytest.raises(ClusterError, match=r"harrow\.power\.loss"):
            cluster.brokers[1].lose_power(seed=1)


def test_failing_data_folder_takes_only_its_partitions_offline() -> None:
    config = {"log.dirs": "data,data2", "min.insync.replicas": 1, "controlled.shutdown.enable": False}
    with Cluster(brokers=3, config=config) as cluster:
        create(cluster, "orders", 4, 3, flush_messages=1)
        with Traffic(cluster, "orders") as traffic:
            traffic.await_more(100)
            cluster.await_full_isr(DEADLINE_S)
            victim = cluster.leader("orders", 0)
            assert victim is not None
            homes = {
                number: next((cluster.folder / f"broker-{victim}").glob(f"data*/orders-{number}")).parent.name
                for number in range(4)
            }
            bad = homes[0]
            assert set(homes.values()) == {"data", "data2"}
            cluster.control(victim, "rules.add", kind="disk", operation="sync", path=f"*/{bad}/*")

            def settled() -> bool:
                view = cluster.describe()
                rows = {number: view.topics["orders"][number] for number in range(4)}
                return all(
                    (row.leader != victim and victim not in row.isr and row.leader >= 0)
                    if homes[number] == bad
                    else victim in row.isr
                    for number, row in rows.items()
                )

            deadline = time.monotonic() + DEADLINE_S
            while not settled():
                assert time.monotonic() < deadline, cluster.describe().topics["orders"]
                traffic.await_more(1)
            traffic.await_more(100)
        assert cluster.brokers[victim].state == "running"
        mine = {row["partition"] for row in cluster.state()[victim] if row["topic"] == "orders"}
        assert mine == {0, 1, 2, 3}
        cluster.brokers[victim].kill()
        cluster.brokers[victim].start()
        cluster.await_converged(DEADLINE_S)
        assert traffic.acked <= set(read_all(cluster, "orders", 4))


def test_the_only_folder_failing_ends_the_broker_and_leaders_move() -> None:
    with Cluster(brokers=3, config={"min.insync.replicas": 1}) as cluster:
        create(cluster, "orders", 1, 3)
        with Traffic(cluster, "orders") as traffic:
            traffic.await_more(50)
            victim = cluster.leader("orders", 0)
            assert victim is not None
            cluster.control(victim, "rules.add", kind="disk", operation="write", path="*/orders-0/*", nth=3)
            cluster.brokers[victim].wait_dead(DEADLINE_S)
            traffic.await_more(50)
            cluster.brokers[victim].start()
        cluster.await_converged(DEADLINE_S)
        assert traffic.acked <= set(read_all(cluster, "orders", 1))
