"""Runs the same tests on our cluster and on Apache Kafka: a client must see the same (rows of the spec's A, C, E)."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from apache_kafka import MISSING, apache_kafka
from harrow.cluster import Cluster
from harrow.cluster.listeners import Address
from harrow.cluster.ports import LOOPBACK
from harrow.harness.backends.apache.kafka_views import live_brokers
from kafka_tools import Tools, ToolsJvm
from raw_kafka import RawKafka
from waiting import until

NUMBERS = itertools.count(1)


@dataclass
class Kafka:
    """Three brokers, ours or Apache Kafka's, reached only by their protocol and by signals to their processes."""

    name: str
    ports: dict[int, int]
    kill: Callable[[int], object]
    terminate: Callable[[int], object]
    start: Callable[[int], object]
    pause: Callable[[int], object]
    resume: Callable[[int], object]
    links: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def raw(self, node: int | None = None) -> RawKafka:
        """Returns a connection to `node`, or to the first broker; it is closed at the end of the test."""
        port = self.ports[min(self.ports) if node is None else node]
        return self.links.enter_context(RawKafka(port, client_id="conformance"))

    def topic(self, name: str, *nodes: int, **config: str) -> str:
        """Creates a new topic with one partition on `nodes`; returns when all brokers report it with a full ISR."""
        unique = f"{name}-{next(NUMBERS)}"
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        controller = self.raw().metadata().controller_id
        created = self.raw(controller).create_topic(unique, assignment=[nodes], config=dotted)
        assert created.error_code == 0, created
        for node in self.ports:
            link = self.raw(node)
            until(partial(self._whole, link, unique, nodes), f"{unique} known to {node}")
        return unique

    def _whole(self, link: RawKafka, topic: str, nodes: tuple[int, ...]) -> bool:
        (row,) = link.metadata(topic).topics
        return bool(row.partitions) and (
            row.partitions[0].leader_id == nodes[0]
            and set(row.partitions[0].isr_nodes) == set(nodes)
            and self._serves(nodes[0], topic)
        )

    def _serves(self, leader: int, topic: str) -> bool:
        return bool(self.raw(leader).list_offset(topic, 0, -1).error_code == 0)

    def partition(self, topic: str, node: int) -> Any:
        """Returns partition 0 from the metadata of `node`."""
        return self.raw(node).metadata(topic).topics[0].partitions[0]


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[Cluster]:
    """Our cluster, started once for a worker."""
    config = {
        "auto.create.topics.enable": False,
        "replica.lag.time.max.ms": 30_000,
        "group.initial.rebalance.delay.ms": 300,
        "group.min.session.timeout.ms": 1_000,
    }
    with Cluster(brokers=3, config=config) as cluster:
        yield cluster


@pytest.fixture
def own_kafka(own_cluster: Cluster) -> Iterator[Kafka]:
    """Yields our brokers."""
    brokers = own_cluster.brokers
    ours = Kafka(
        name="harrow",
        ports={node: broker.port for node, broker in brokers.items()},
        kill=lambda node: brokers[node].kill(),
        terminate=lambda node: brokers[node].terminate(),
        start=lambda node: brokers[node].start(),
        pause=lambda node: brokers[node].pause(),
        resume=lambda node: brokers[node].resume(),
    )
    with ours.links:
        yield ours


@pytest.fixture(
    params=["harrow", pytest.param("apache", marks=pytest.mark.skipif(bool(MISSING), reason=MISSING or "-"))]
)
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """Yields three brokers that serve clients on 127.0.0.1."""
    if request.param == "harrow":
        yield request.getfixturevalue("own_kafka")
        return
    with apache_kafka() as apache:
        theirs = Kafka(
            name="apache",
            ports=apache.ports,
            kill=apache.kill,
            terminate=apache.terminate,
            start=apache.start,
            pause=lambda node: apache.signal(node, signal.SIGSTOP),
            resume=lambda node: apache.signal(node, signal.SIGCONT),
        )
        with theirs.links:
            for node in theirs.ports:  # the test before may have started one again
                until(partial(_knows_all, theirs, node), f"node {node} knows all nodes")
            yield theirs


def _knows_all(kafka: Kafka, node: int) -> bool:
    return live_brokers(Address(LOOPBACK, kafka.ports[node])) == frozenset(kafka.ports)


@pytest.fixture(scope="session")
def tools_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolsJvm]:
    """The JVM of Kafka's command line tools, started once for a worker."""
    with ToolsJvm(tmp_path_factory.mktemp("kafka-tools")) as jvm:
        yield jvm


@pytest.fixture(scope="session")
def second_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolsJvm]:
    """A JVM for a tool that runs beside another tool."""
    with ToolsJvm(tmp_path_factory.mktemp("kafka-tools")) as jvm:
        yield jvm


@pytest.fixture
def tools(kafka: Kafka, request: pytest.FixtureRequest) -> Tools:
    """Kafka's command line tools on the cluster of `kafka`; skipped where Apache Kafka's jars are not."""
    if MISSING:
        pytest.skip(MISSING)
    return Tools(request.getfixturevalue("tools_jvm"), kafka.ports)


@pytest.fixture
def tools_beside(kafka: Kafka, tools: Tools, request: pytest.FixtureRequest) -> Tools:
    """The same tools in another JVM, for a tool that runs while `tools` runs others."""
    return Tools(request.getfixturevalue("second_jvm"), kafka.ports)
