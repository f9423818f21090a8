"""The clusters that a benchmark compares: ours, Apache Kafka, and librdkafka's mock.

Each peer is a context manager that yields a `Peer`: its name, its bootstrap servers, and the pids whose memory and CPU
time are measured. Apache Kafka is found through `HARROW_APACHE_KAFKA` (a command that accepts `up DIR`) or at
`../shared/tools/apache-kafka`; when it cannot run here, `UnavailableError` has the reason. It listens on ports that
were free just before the start, so that no other Kafka is measured by mistake, and a guard (`guard.py`) ends it in
whatever way the benchmark ends.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from guard import guarded_folder
from harrow.cluster import Cluster

KAFKA_TOOL = Path(__file__).parents[2] / "shared" / "tools" / "apache-kafka"
KAFKA_START_S = 120.0
KAFKA_NODES = 3
KAFKA_SESSION_MS = 3000
KAFKA_SETTINGS = f"broker.session.timeout.ms={KAFKA_SESSION_MS}\nbroker.heartbeat.interval.ms=500"
PORTS = range(29090, 29990, 10)
"""Base ports to try: node i listens on base + i, its controller on base - 10000 + i."""

HARROW, KAFKA, MOCK = "harrow", "apache kafka", "librdkafka mock"


class UnavailableError(Exception):
    """A peer cannot run here; the text has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running cluster: its bootstrap servers, and the pids of its brokers by node id."""

    name: str
    bootstrap_servers: str
    pids: dict[int, int] = field(default_factory=dict[int, int])
    start_ms: float = 0.0
    kill: Callable[[int], None] | None = None
    cluster: Cluster | None = None
    client: Mapping[str, str] = field(default_factory=dict[str, str])
    """What clients need beside the address."""


@contextmanager
def harrow(config: dict[str, object] | None = None) -> Generator[Peer]:
    """Runs three brokers of ours."""
    began = time.perf_counter()
    with Cluster(brokers=3, config=config, name="bench") as cluster:
        pids = {i: b.pid for i, b in cluster.brokers.items() if b.pid is not None}
        yield Peer(
            name=HARROW,
            bootstrap_servers=cluster.bootstrap_servers,
            pids=pids,
            start_ms=(time.perf_counter() - began) * 1e3,
            kill=lambda node: cluster.brokers[node].kill(),
            cluster=cluster,
        )


def kafka_tool() -> str:
    """Returns the command that starts an Apache Kafka here."""
    named = os.environ.get("HARROW_APACHE_KAFKA")
    tool = named or (str(KAFKA_TOOL) if KAFKA_TOOL.exists() else "")
    if not tool:
        raise UnavailableError(f"no {KAFKA_TOOL}, and HARROW_APACHE_KAFKA names no other command")
    for needed in ("java", "mvn"):
        if shutil.which(needed) is None:
            raise UnavailableError(f"Apache Kafka needs {needed}")
    return tool


@contextmanager
def apache_kafka(config: dict[str, object] | None = None) -> Generator[Peer]:
    """Runs three nodes of Apache Kafka, each both broker and controller, with these settings beside the usual ones."""
    tool = kafka_tool()
    with guarded_folder("harrow-kafka-") as folder:
        lines = "\n".join([KAFKA_SETTINGS, *(f"{name}={value}" for name, value in (config or {}).items())])
        environment = {**os.environ, "KAFKA_PORT": str(_free_base()), "KAFKA_SET": lines}
        command = [tool, "up", str(folder / "kafka"), str(KAFKA_NODES)]
        began = time.perf_counter()
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=KAFKA_START_S, env=environment
            )
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"Apache Kafka did not start in {KAFKA_START_S:g} s") from error
        servers = re.search(r"bootstrap\.servers=(\S+)", done.stdout)
        pids = re.search(r"pids=(\S+)", done.stdout)
        if done.returncode or servers is None or pids is None:
            raise UnavailableError(f"Apache Kafka did not start: {done.stderr[-300:]}")
        by_node = {int(k): int(v) for k, v in (pair.split("=") for pair in pids[1].split(","))}
        yield Peer(
            name=KAFKA,
            bootstrap_servers=servers[1],
            pids=by_node,
            start_ms=(time.perf_counter() - began) * 1e3,
            kill=lambda node: os.kill(by_node[node], 9),
        )


def _free_base() -> int:
    for base in PORTS:
        wanted = [base + i for i in range(1, KAFKA_NODES + 1)]
        if all(_free(port) and _free(port - 10_000) for port in wanted):
            return base
    raise UnavailableError("no free ports for Apache Kafka")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def librdkafka_mock() -> Generator[Peer]:
    """Runs librdkafka's built-in mock cluster, which lives in this process and does not replicate.

    It keeps only the last 5 MiB of a partition: a consumer that expects more records waits for ever.
    """
    keeper = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored", "log_level": 0})
    metadata: Any = keeper.list_topics(timeout=10)
    servers = ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())
    yield Peer(name=MOCK, bootstrap_servers=servers)
    del keeper


def pss_mib(pid: int) -> float:
    """Returns the proportional set size of a process in MiB: shared pages of the fork server count by their share."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def cpu_seconds(peer: Peer) -> float:
    """Returns the CPU time of a peer's brokers; 0 for a peer without processes of its own."""
    ticks = 0
    for pid in peer.pids.values():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
