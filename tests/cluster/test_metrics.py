"""Metrics under Kafka's names, over HTTP for Prometheus and over the control socket (C10)."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from harrow import Cluster
from kafka.admin import NewTopic
from kafka_python_admin import SOCKETS, admin_of
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

CONFIG = {
    "harrow.metrics.port": 0,
    "min.insync.replicas": 1,
    "replica.lag.time.max.ms": 1_000,
    "zookeeper.session.timeout.ms": 3_000,
    "auto.leader.rebalance.enable": False,
}

pytestmark = SOCKETS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, config=CONFIG) as cluster:
        yield cluster


def asked(cluster: Cluster, node: int, name: str) -> float:
    """Reads a metric through the control socket."""
    values: dict[str, float] = cluster.control(node, "metrics")["metrics"]
    return values[name]


def get(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def scraped(cluster: Cluster, node: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Reads all metrics as Prometheus would."""
    status, text = get(cluster.control(node, "metrics")["port"])
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def produce(cluster: Cluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


def test_metrics_of_produced_records_are_read_over_http_and_the_control_socket(cluster: Cluster) -> None:
    produce(cluster, "measured", 100)
    cluster.await_converged()
    leader = cluster.leader("measured", 0)
    assert leader is not None
    page = scraped(cluster, leader)
    where = (("partition", "0"), ("topic", "measured"))
    assert page["kafka_log_Log_LogEndOffset", where] == 100
    assert page["kafka_log_Log_HighWatermark", where] == 100
    lag = (*where[:1], ("replica", str(3 - leader)), *where[1:])
    assert page["kafka_cluster_Partition_ReplicaLag", lag] == 0
    requests = ("kafka_network_RequestMetrics_RequestsPerSec_total", (("request", "Produce"),))
    assert page[requests] >= 1
    assert page["kafka_network_RequestMetrics_TotalTimeMs_total", requests[1]] > 0
    delayed = ("kafka_server_DelayedOperationPurgatory_NumDelayedOperations", (("delayedOperation", "Fetch"),))
    until(lambda: scraped(cluster, leader)[delayed] == 1, "the follower's fetch waits at the leader")
    assert page["harrow_metrics_Metrics_FailedSources", ()] == 0
    assert asked(cluster, leader, "kafka.log:type=Log,name=LogEndOffset,topic=measured,partition=0") == 100


def test_the_active_controller_count_is_one_on_the_controller_only(cluster: Cluster) -> None:
    name = "kafka.controller:type=KafkaController,name=ActiveControllerCount"
    found = {node: asked(cluster, node, name) for node in cluster.brokers}
    assert sorted(found.values()) == [0, 1]
    assert found[cluster.controller_id() or 0] == 1


def test_pausing_and_resuming_a_follower_shows_in_the_metrics(cluster: Cluster) -> None:
    produce(cluster, "watched", 10)
    cluster.await_converged()
    leader = cluster.leader("watched", 0)
    assert leader is not None
    replica_manager = "kafka.server:type=ReplicaManager,name="
    before = asked(cluster, leader, f"{replica_manager}IsrShrinksPerSec")
    expands = asked(cluster, leader, f"{replica_manager}IsrExpandsPerSec")
    cluster.brokers[3 - leader].pause()
    try:
        produce(cluster, "watched", 5)
        until(lambda: asked(cluster, leader, f"{replica_manager}UnderReplicatedPartitions") >= 1)
        assert asked(cluster, leader, f"{replica_manager}IsrShrinksPerSec") > before
        lag = f"kafka.cluster:type=Partition,name=ReplicaLag,topic=watched,partition=0,replica={3 - leader}"
        assert asked(cluster, leader, lag) == 5
    finally:
        cluster.brokers[3 - leader].resume()
    cluster.await_converged()
    assert asked(cluster, leader, f"{replica_manager}UnderReplicatedPartitions") == 0
    assert asked(cluster, leader, f"{replica_manager}IsrExpandsPerSec") > expands
    assert asked(cluster, leader, lag) == 0


def test_the_metrics_page_serves_only_get_of_its_path(cluster: Cluster) -> None:
    port = cluster.control(1, "metrics")["port"]
    assert get(port, "/")[0] == 404
    assert get(port, method="POST")[0] == 405
    assert get(port, method="HEAD") == (200, "")
    with socket.create_connection(("127.0.0.1", port), 10) as garbage:
        garbage.sendall(b"\xff" * 20_000)
        with contextlib.suppress(ConnectionResetError):
            assert garbage.recv(4096) == b""
    assert get(port)[0] == 200


def test_killing_the_only_replica_counts_an_offline_partition(cluster: Cluster) -> None:
    name = "kafka.controller:type=KafkaController,name=OfflinePartitionsCount"
    controller = cluster.controller_id()
    assert controller is not None
    with admin_of(cluster) as admin:
        admin.create_topics([NewTopic("lonely", replica_assignments={0: [3 - controller]})])
    assert asked(cluster, controller, name) == 0
    cluster.brokers[3 - controller].kill()
    until(lambda: asked(cluster, controller, name) == 1)
    cluster.brokers[3 - controller].start()
    until(lambda: asked(cluster, controller, name) == 0)
    cluster.await_converged()
