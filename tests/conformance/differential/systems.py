"""The two systems of a run: three nodes of Apache Kafka and three of our brokers, started once, with equal settings.

Owns: how they start and end, the settings that both get, and how a dead broker of ours is found and started again.
Nodes of Apache Kafka that already run are used when their port is given (`--kafka-port`): node i listens on port + i.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from free_ports import first_free
from harrow.cluster import Cluster
from harrow.cluster.config import BY_NAME
from kafka_reference import ASSIGNED_AT_ONCE, HAS_JARS, TOOL

from .world import INTERNAL_PARTITIONS

NODES = (1, 2, 3)
SETTINGS: dict[str, object] = {
    "auto.create.topics.enable": True,
    "auto.leader.rebalance.enable": False,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "replica.fetch.backoff.ms": 50,
    "share.coordinator.state.topic.num.partitions": INTERNAL_PARTITIONS,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    "group.streams.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
BUSY_MACHINE_KAFKA: dict[str, object] = {"broker.session.timeout.ms": 60_000}
BUSY_MACHINE_HARROW: dict[str, object] = {
    "zookeeper.session.timeout.ms": 60_000,
    "harrow.replica.silence.max.ms": 60_000,
}
"""A node that gets no processor for seconds keeps its session and its place in ISRs: else worlds differ."""
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Without the optimising compiler, which takes more of two processors than it gives back in ten minutes."""
START_TIMEOUT_S = 150.0


@dataclass
class Systems:
    """The ports of both systems by node id, and our cluster."""

    kafka: dict[int, int]
    cluster: Cluster
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def harrow(self) -> dict[int, int]:
        return {node: broker.port for node, broker in self.cluster.brokers.items()}

    def revive(self) -> list[int]:
        """Starts each of our brokers that has ended; returns their ids."""
        with self._lock:
            dead = [node for node, broker in self.cluster.brokers.items() if not broker.alive]
            for node in dead:
                self.cluster.brokers[node].start()
            return dead


def missing() -> str:
    """Returns why Apache Kafka cannot run here, or an empty string."""
    if shutil.which("java") is None:
        return "no java, so no Apache Kafka to compare with"
    if not Path(TOOL).exists():
        return f"no {TOOL}, so no Apache Kafka to compare with"
    return "" if HAS_JARS else f"Apache Kafka's jars are not here; fetch them once with `{TOOL} jars`"


@contextmanager
def started(kafka_port: int | None) -> Generator[Systems]:
    """Yields both systems; Apache Kafka is started unless `kafka_port` names nodes that run."""
    with ExitStack() as stack:
        port = stack.enter_context(_apache()) if kafka_port is None else kafka_port
        stored = {name: value for name, value in ASSIGNED_AT_ONCE.items() if name in BY_NAME}
        config = {**SETTINGS, **BUSY_MACHINE_HARROW, **stored}
        cluster = stack.enter_context(Cluster(brokers=len(NODES), config=config))
        yield Systems(kafka={node: port + node for node in NODES}, cluster=cluster)


@contextmanager
def _apache() -> Generator[int]:
    controllers = (node - 10_000 for node in NODES)  # the tool's rule for their ports
    wanted = os.environ.get("KAFKA_PORT")
    port = int(wanted) if wanted else first_free(range(30_090, 32_700, 20), (*NODES, *controllers))
    with tempfile.TemporaryDirectory(prefix="differential-") as folder:
        settings = {**SETTINGS, **BUSY_MACHINE_KAFKA, **ASSIGNED_AT_ONCE}
        lines = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in settings.items()
        ]
        environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_SET": "\n".join(lines)}
        environment.setdefault("KAFKA_HEAP", "1g")
        environment.setdefault("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        try:
            subprocess.run(
                [TOOL, "up", f"{folder}/kafka", str(len(NODES))],
                env=environment,
                check=True,
                capture_output=True,
                timeout=START_TIMEOUT_S,
            )
            yield port
        finally:
            subprocess.run([TOOL, "down", f"{folder}/kafka"], check=False, capture_output=True)
