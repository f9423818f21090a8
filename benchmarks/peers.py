"""Clusters that a benchmark measures beside each other: ours, Apache Kafka, librdkafka's mock.

Each peer is a context manager that yields a `Peer`: its name, its bootstrap servers and the pids whose
memory counts. Apache Kafka is found through `HARROW_APACHE_KAFKA` (a command that takes `up DIR` and
`down DIR`) or `../shared/tools/apache-kafka`; without it or without Java the peer is left out, and said so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from harrow.cluster import Cluster

KAFKA_TOOL = Path(__file__).parents[2] / "shared" / "tools" / "apache-kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running cluster: where clients connect, and the pids of its brokers by node id."""

    name: str
    bootstrap_servers: str
    pids: dict[int, int] = field(default_factory=dict[int, int])
    kill: Callable[[int], None] | None = None
    cluster: Cluster | None = None


@contextmanager
def harrow(config: dict[str, object] | None = None) -> Generator[Peer]:
    """Three brokers of ours."""
    with Cluster(brokers=3, config=config, name="bench") as cluster:
        pids = {i: b.pid for i, b in cluster.brokers.items() if b.pid is not None}
        yield Peer(
            name="harrow",
            bootstrap_servers=cluster.bootstrap_servers,
            pids=pids,
            kill=lambda node: cluster.brokers[node].kill(),
            cluster=cluster,
        )


def kafka_tool() -> str | None:
    """The command that starts an Apache Kafka here, or None."""
    tool = os.environ.get("HARROW_APACHE_KAFKA") or (str(KAFKA_TOOL) if KAFKA_TOOL.exists() else "")
    return tool if tool and shutil.which("java") and shutil.which("mvn") else None


@contextmanager
def apache_kafka() -> Generator[Peer | None]:
    """Three nodes of Apache Kafka, or None where there is none."""
    tool = kafka_tool()
    if tool is None:
        yield None
        return
    folder = tempfile.mkdtemp(prefix="harrow-kafka-")
    data = str(Path(folder) / "kafka")
    try:
        done = subprocess.run([tool, "up", data], check=True, capture_output=True, text=True)
        servers = re.search(r"bootstrap\.servers=(\S+)", done.stdout)
        pids = re.search(r"pids=(\S+)", done.stdout)
        assert servers is not None and pids is not None, done.stdout
        by_node = {int(k): int(v) for k, v in (pair.split("=") for pair in pids[1].split(","))}
        yield Peer(
            name="apache kafka",
            bootstrap_servers=servers[1],
            pids=by_node,
            kill=lambda node: os.kill(by_node[node], 9),
        )
    finally:
        with contextlib.suppress(OSError):
            subprocess.run([tool, "down", data], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def librdkafka_mock() -> Generator[Peer]:
    """Librdkafka's built-in mock cluster, which lives in this process and replicates nothing."""
    keeper = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored"})
    metadata: Any = keeper.list_topics(timeout=10)
    servers = ",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values())
    yield Peer(name="librdkafka mock", bootstrap_servers=servers)
    del keeper


def pss_mib(pid: int) -> float:
    """Proportional set size of a process in MiB (shared pages of the fork server counted by their share)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
