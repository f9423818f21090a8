"""Measures what links between Kafka's nodes cost that pass the proxy: the same load with and without, in turns.

    python benchmarks/bench_links.py [--kafka FOLDER] [--messages 20000] [--rounds 3]

Two clusters of three nodes, both behind a proxy for clients; in one the nodes also reach each other through it. For
each load with acks=all: messages per second, and the CPU time per message of the proxy and of the nodes. Both clusters
are under the same load of the machine, so the ratios hold where the rates do not. Goal: at most 50 % more CPU time in
all.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import load
import peers
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.kafka_cluster import KafkaCluster
from load import Budget
from peers import Peer

STEP_S, LIMIT_S = 120.0, 900.0
SIZES = {"100 B": 100, "1 KiB": 1024}
ONE_AT_A_TIME = 300
RATIO_MOST = 1.5
CONFIG = {"default.replication.factor": 3, "min.insync.replicas": 2, "offsets.topic.replication.factor": 3}


class Way:
    """One of the two clusters, and what was measured on it."""

    def __init__(self, cluster: KafkaCluster) -> None:
        nodes = {node: broker.pid or 0 for node, broker in cluster.brokers.items()}
        self.peer = Peer(name="kafka", bootstrap_servers=cluster.bootstrap_servers, pids=nodes)
        self._proxy = Peer(name="proxy", bootstrap_servers="", pids={0: cluster.proxy.process.pid or 0})
        self.values: dict[str, list[float]] = {}

    def measure(self, figure: str, count: int, unit: str, rate: float, before: list[float]) -> None:
        """Add a rate, and the CPU time since `before`, per message."""
        proxy, nodes, client = (now - then for now, then in zip(self.cpu(), before, strict=True))
        for name, value in (
            (f"{figure}, {unit}", rate),
            (f"{figure}: proxy CPU, us", proxy / count * 1e6),
            (f"{figure}: nodes CPU, us", nodes / count * 1e6),
            (f"{figure}: all CPU, us", (proxy + nodes + client) / count * 1e6),
        ):
            self.values.setdefault(name, []).append(value)

    def cpu(self) -> list[float]:
        """The CPU time so far of the proxy, the nodes and this process."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        return [peers.cpu_seconds(self._proxy), peers.cpu_seconds(self.peer), own.ru_utime + own.ru_stime]


def measure(way: Way, messages: int, budget: Budget) -> None:
    """Run each load once."""
    for name, size in SIZES.items():
        topic, before = load.make_topic(way.peer), way.cpu()
        rate = load.produce(way.peer, topic, size, messages, budget.step(STEP_S))
        way.measure(f"produce {name}", messages, "msg/s", rate, before)
    sender = load.OneAtATime(way.peer.bootstrap_servers, load.make_topic(way.peer))
    load.repeat(sender.send, 50, budget.step(STEP_S))
    before = way.cpu()
    p50 = median(load.repeat(sender.send, ONE_AT_A_TIME, budget.step(STEP_S))) * 1e3
    way.measure("one at a time", ONE_AT_A_TIME, "p50 us", p50, before)


def main() -> int:
    """Measure both clusters; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kafka", default="")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    installation, budget = find_kafka(options.kafka), Budget(LIMIT_S)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="harrow-bench-")))
        ways: dict[str, Way] = {}
        for name, relayed in (("direct", False), ("relayed", True)):
            make = partial(KafkaCluster, installation, folder=folder / name, brokers=3, seed=3)
            cluster = make(config=CONFIG, relayed=relayed)
            stack.callback(cluster.stop)
            cluster.start()
            ways[name] = Way(cluster)
        for number in range(options.rounds + 1):
            for way in ways.values():
                if number == 1:
                    way.values.clear()  # the first round warms up
                measure(way, options.messages, budget)
    missed = False
    for figure in ways["direct"].values:
        without, through = (median(way.values[figure]) for way in ways.values())
        ratio = through / max(without, 1e-9)
        print(f"{figure:<40}{without:>12,.1f}{through:>12,.1f}{ratio:>8.2f}")
        missed = missed or (figure.endswith("all CPU, us") and ratio > RATIO_MOST)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
