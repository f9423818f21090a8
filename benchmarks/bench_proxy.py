"""Measures what the proxy costs: the same load directly and through it, in turns, on our brokers and on Apache Kafka.

    python benchmarks/bench_proxy.py [--messages 200000] [--rounds 5] [--skip harrow,kafka]

For each peer that runs here: the medians of both ways, and their ratio or difference.

* one request at a time: p50 of a Produce with acks=1 on one plain connection, directly, through a process that only
  copies bytes (`relay.py`: the least that any proxy in Python adds on this machine), and through the proxy; with the
  cores kept awake, and as they are: there the wake-ups of idle cores are in the time, two more for a hop more
* one at a time: the same with librdkafka, acks=all and linger 0; the CPU time of the proxy's process per request
* produce, consume: messages per second at 100 B and 1 KiB; the CPU time of the proxy's process per message, and as a
  share of the CPU time of clients and brokers. On a machine whose cores are all busy that share is the throughput lost

Goals: at most 100 us more per request, at most 30 % of the direct throughput lost. Exit code 1 when one is missed. The
proxy writes its tap, as a run does; `--no-tap` leaves it out. The goal for a request is judged by the plain connection:
with librdkafka and acks=all, client, leader, followers and proxy compete for the cores, and their wait is in the time.
It is judged with the cores awake, because the wake-up of a core is the machine's time.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import load
import peers
from confluent_kafka.admin import AdminClient
from harrow.cluster.proxy_supervisor import Proxy
from load import Budget
from peers import Peer
from relay import RawProducer, cores_awake, relayed

MESSAGES_LEAST = 100_000
STEP_S, LIMIT_S = 60.0, 600.0
REQUESTS, RAW_REQUESTS = 500, 2_000
RAW, RAW_ASLEEP = "one request, cores awake p50, us", "one request, cores as they are p50, us"
CORES: dict[str, Callable[[], AbstractContextManager[None]]] = {RAW: cores_awake, RAW_ASLEEP: nullcontext}
SIZES = {"100 B": 100, "1 KiB": 1024}
ADDED_US_MOST, LOST_MOST = 100.0, 0.3
DIRECT, RELAYED, PROXIED = "direct", "relayed", "proxied"


class Ways:
    """A peer reached directly and through a proxy, and the values of both ways."""

    def __init__(self, direct: Peer, proxy: Proxy) -> None:
        pid = proxy.process.pid
        assert pid is not None
        self._proxy = Peer(name=PROXIED, bootstrap_servers="", pids={0: pid})
        self.peers = {DIRECT: direct, PROXIED: replace(direct, bootstrap_servers=proxy.bootstrap_servers)}
        self.values: dict[str, dict[str, list[float]]] = {}

    def measure(self, figure: str, count: int, work: Callable[[Peer], float]) -> None:
        """Runs `work` both ways; the proxy's CPU time is counted for `count` messages."""
        for way, peer in self.peers.items():
            before, others = peers.cpu_seconds(self._proxy), self._others()
            self.add(figure, way, work(peer))
            if way == PROXIED:
                took, rest = peers.cpu_seconds(self._proxy) - before, self._others() - others
                self.add(f"{figure}: proxy CPU, us", way, took / count * 1e6)
                self.add(f"{figure}: proxy CPU, share of the others'", way, took / max(rest, 1e-3))

    def _others(self) -> float:
        """The CPU time of the brokers and of this process, which is the client."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        return peers.cpu_seconds(self.peers[DIRECT]) + own.ru_utime + own.ru_stime

    def add(self, figure: str, way: str, value: float) -> None:
        """Notes the value of one round."""
        self.values.setdefault(figure, {}).setdefault(way, []).append(value)


@contextmanager
def proxied(peer: Peer, *, tap: bool) -> Generator[Ways]:
    """Puts a proxy in front of a peer."""
    brokers: Any = AdminClient({"bootstrap.servers": peer.bootstrap_servers}).list_topics().brokers
    upstreams = {node: (broker.host, broker.port) for node, broker in brokers.items()}
    with tempfile.TemporaryDirectory(prefix="harrow-bench-") as folder, Proxy(folder, upstreams, tap=tap) as proxy:
        yield Ways(peer, proxy)


def measure(ways: Ways, messages: int, rounds: int, budget: Budget) -> None:
    """Runs the rounds; the first one warms up and does not count."""
    direct = ways.peers[DIRECT]
    for number in range(rounds + 1):
        if number == 1:
            ways.values.clear()
        ways.measure("one at a time p50, us", REQUESTS, partial(_latency, load.make_topic(direct), budget))
        for name, size in SIZES.items():
            count = messages if size < SIZES["1 KiB"] else messages // 4
            ways.measure(f"produce {name}, msg/s", count, partial(_produce, size, count, budget))
            filled = load.make_topic(direct)
            load.fill(direct, filled, size, count, budget.step(STEP_S))
            ways.measure(f"consume {name}, msg/s", count, partial(_consume, filled, budget))


def _produce(size: int, count: int, budget: Budget, peer: Peer) -> float:
    return load.produce(peer, load.make_topic(peer), size, count, budget.step(STEP_S))


def _consume(topic: str, budget: Budget, peer: Peer) -> float:
    return load.consume(peer, topic, budget.step(STEP_S))


def compare_requests(ways: Ways, rounds: int, budget: Budget) -> None:
    """Measures one request at a time: directly, relayed and proxied, in turns."""
    direct = ways.peers[DIRECT]
    topic = load.make_topic(direct, partitions=1)
    admin: Any = AdminClient({"bootstrap.servers": direct.bootstrap_servers})
    listed: Any = admin.list_topics(topic)
    leader: int = listed.topics[topic].partitions[0].leader
    broker = listed.brokers[leader]
    proxied_admin: Any = AdminClient({"bootstrap.servers": ways.peers[PROXIED].bootstrap_servers})
    proxied_broker = proxied_admin.list_topics(topic).brokers[leader]
    with relayed((broker.host, broker.port)) as relay:
        addresses = {
            DIRECT: (broker.host, broker.port),
            RELAYED: relay,
            PROXIED: (proxied_broker.host, proxied_broker.port),
        }
        for number in range(rounds + 1):
            for figure, cores in CORES.items():
                for way, address in addresses.items():
                    with cores():
                        took_us = _raw_latency(address, topic, budget)
                    if number:  # the first round warms up
                        ways.add(figure, way, took_us)


def _raw_latency(address: tuple[str, int], topic: str, budget: Budget) -> float:
    sender = RawProducer(address, topic)
    times = load.repeat(sender.send, RAW_REQUESTS, budget.step(STEP_S))
    sender.close()
    return median(times) * 1e3


def _latency(topic: str, budget: Budget, peer: Peer) -> float:
    sender = load.OneAtATime(peer.bootstrap_servers, topic)
    load.repeat(sender.send, 50, budget.step(STEP_S))
    return median(load.repeat(sender.send, REQUESTS, budget.step(STEP_S))) * 1e3


def report(name: str, ways: Ways) -> list[str]:
    """Prints the table of a peer; returns the missed goals."""
    missed: list[str] = []
    print(f"\n{name:<50}{DIRECT:>12}{PROXIED:>12}{'':>4}change")
    for figure, values in ways.values.items():
        found = {way: median(rows) for way, rows in values.items()}
        line = "".join(f"{found[way]:>12,.2f}" if way in found else f"{'':>12}" for way in ways.peers)
        change = ""
        if figure.endswith("p50, us"):
            added = found[PROXIED] - found[DIRECT]
            change = f"+{added:.0f} us a request"
            if RELAYED in found:
                change += f"; a relay that only copies adds {found[RELAYED] - found[DIRECT]:.0f}"
            if figure == RAW and added > ADDED_US_MOST:
                missed.append(f"{name}, {figure}: {change}, the goal is {ADDED_US_MOST:g}")
        elif figure.endswith("msg/s"):
            lost = 1 - found[PROXIED] / found[DIRECT]
            change = f"{-lost:+.0%}"
            if lost > LOST_MOST:
                missed.append(f"{name}, {figure}: {lost:.0%} lost, the goal is {LOST_MOST:.0%}")
        print(f"{figure:<50}{line}    {change}")
    return missed


def main() -> int:
    """Measures every peer that runs here; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip", default="", help="harrow, kafka")
    parser.add_argument("--no-tap", action="store_true")
    options = parser.parse_args()
    if options.messages < MESSAGES_LEAST:
        parser.error(f"--messages {options.messages}: at least {MESSAGES_LEAST:,}; a consumer reads fewer at once")
    skipped = set(options.skip.split(","))
    budget, missed = Budget(LIMIT_S), list[str]()
    makers = {"harrow": peers.harrow, "kafka": peers.apache_kafka}
    for name, make in makers.items():
        if name in skipped:
            continue
        with ExitStack() as stack:
            try:
                peer = stack.enter_context(make())
            except peers.UnavailableError as error:
                print(f"{name}: {error}")
                continue
            ways = stack.enter_context(proxied(peer, tap=not options.no_tap))
            measure(ways, options.messages, options.rounds, budget)
            compare_requests(ways, options.rounds, budget)
            missed += report(peer.name, ways)
    for line in missed:
        print(f"goal missed: {line}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
