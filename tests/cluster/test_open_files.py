"""Brokers that are asked for more partitions than they may open files live, and serve what they have (B1, C9)."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from harrow.cluster import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from long_runs import long_run
from raw_kafka import RawKafka
from waiting import until

LIMIT, ASKED = 1024, 3000
BLOCKED_MOST_S = 3.0
"""How long a broker may let a client wait meanwhile, on a machine that is busy with other tests."""


@pytest.fixture
def few_files() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"auto.create.topics.enable": False}) as cluster:
        for broker in cluster.brokers.values():
            assert broker.pid is not None
            _, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, hard))
        yield cluster


@pytest.fixture
def open_links() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def produced(link: RawKafka, topic: str, partition: int) -> Any:
    return link.produce(topic, partition, ["a"], acks=1)


def named(cluster: Cluster) -> set[int]:
    """The partitions of which the log of a broker says that they have no log."""
    found: set[int] = set()
    for broker in cluster.brokers.values():
        text = (cluster.folder / f"broker-{broker.node_id}" / "broker.log").read_text()
        for line in text.splitlines():
            if "replicas have no log here" in line:
                names = line.split("here: ")[1].split(";")[0].split(", ")
                found.update(int(name.rpartition("-")[2]) for name in names)
    return found


@long_run
def test_brokers_that_may_open_few_files_refuse_partitions_and_live(few_files: Cluster, open_links: ExitStack) -> None:
    ports = {node: broker.port for node, broker in few_files.brokers.items()}
    links = {node: open_links.enter_context(RawKafka(port)) for node, port in ports.items()}
    beside = {node: open_links.enter_context(RawKafka(port)) for node, port in ports.items()}
    controller = links[links[1].metadata().controller_id]
    assert controller.create_topic("before", partitions=3, replication=3).error_code == 0
    many = {"name": "many", "num_partitions": ASKED, "replication_factor": 1, "assignments": (), "configs": ()}
    asked = controller.send(ApiKey.CREATE_TOPICS, 5, topics=(many,), timeout=30_000, validate_only=False)
    slowest = 0.0
    while not controller.ready():
        for link in beside.values():
            began = time.monotonic()
            link.metadata("before")
            slowest = max(slowest, time.monotonic() - began)
    correlation, _ = controller.take()
    assert correlation == asked
    assert slowest < BLOCKED_MOST_S

    def settled() -> set[int]:
        """The partitions that are refused for good; the others are served."""
        (row,) = links[1].metadata("many").topics
        leaders = {each.partition_index: each.leader_id for each in row.partitions}
        led = {number: node for number, node in leaders.items() if node >= 0}
        refused = set(range(ASKED)) - led.keys()
        sample = list(led.items())[::50]
        served = all(produced(links[node], "many", number).error_code == 0 for number, node in sample)
        return refused if served and refused <= named(few_files) else set()

    refused = until(settled, "every partition is served, or named in the log of a broker")
    assert 100 < len(refused) < ASKED - 1000
    for broker in few_files.brokers.values():
        assert os.path.exists(f"/proc/{broker.pid}"), f"broker {broker.node_id} has ended"
    (row,) = links[1].metadata("before").topics
    for each in row.partitions:
        assert produced(links[each.leader_id], "before", each.partition_index).error_code == 0
    lost = min(refused)
    codes = {produced(link, "many", lost).error_code for link in links.values()}
    assert ErrorCode.kafka_storage_error in codes
    texts = [produced(link, "many", lost).error_message or "" for link in links.values()]
    assert any(f"many-{lost}" in text and "ulimit -n" in text for text in texts), texts
