"""Measures a cluster of ours, a warm Apache Kafka and librdkafka's mock cluster in the same run.

    python benchmarks/bench_cluster.py [--messages 400000] [--rounds 3] [--skip start,load,failover,kafka,mock]

Prints for each figure the median of each peer, the ratio of ours to Kafka's, and the goal; exit code 1 when a goal is
missed. Where a peer cannot be measured, the table shows the reason. The whole run ends within `--limit` seconds. The
peers take turns; each was warmed up with the same load until it did not become faster.

* start: time until the cluster is ready (from a warm fork server), until the first metadata, and until the first
  acks=all record (Kafka: its own start); time of `harrow up` from the shell to its ready line, with cached bytecode
* produce: messages per second with acks=all and replication factor 3, at 100 B and 1 KiB, and the CPU time of all
  brokers per message
* consume: messages per second from a topic that was filled with the same batches on every peer, and the CPU time of
  all brokers per message (the mock keeps only 5 MiB of a partition)
* one at a time: acks=all, linger 0: p50 and p99, and the CPU time of all brokers per message. The peers take turns
  every 250 messages, so that other load on the machine affects all of them alike, and the turns of a peer are
  evaluated together. For comparison the same hops between processes that do nothing else (`hops.py`): the lower bound
  on this machine
* memory: PSS of a broker after the run
* failover: a leader is killed with a session timeout of 300 ms. Time from the end of the session to the last of the
  new leaders and to the next acknowledged record; time from the kill to the next record, minus the session timeout
  (Kafka: one kill, session timeout 3 s). The client refreshes its metadata every 100 ms; a separate line has
  librdkafka's default, once a second. The kills are spread evenly over that second
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType

import load
import peers
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from figures import Figures
from harrow.cluster import HarrowError
from harrow.cluster.supervisor import fork_server
from hops import bare_hops
from load import Budget, ExceededError
from peers import Peer

STEP_S = 60.0
SESSION_MS = 300
FAILOVERS = 7
WARM_S, WARM_LEAST, WARM_GAIN = 60.0, 3, 1.05
TURN, TURNS, WARM_MESSAGES = 250, 32, 500
SMALL, BIG = "100 B", "1 KiB"
SIZES = {SMALL: 100, BIG: 1024}
LATENCY = ("one at a time p50, ms", "one at a time p99, ms", "one at a time, broker CPU us/msg")
FAILED = (ExceededError, KafkaException, HarrowError, OSError, peers.UnavailableError)


def attempt(figures: Figures, names: Sequence[str], peer: str, work: Callable[[], None]) -> None:
    """Runs a step; a failure is noted in the table, and its figures are not tried again for this peer."""
    if figures.skipped(names, peer):
        return
    try:
        work()
    except FAILED as error:
        figures.skip(names, peer, f"{type(error).__name__}: {error}")


def measure_start(figures: Figures, rounds: int, budget: Budget) -> None:
    """Measures the time from nothing to the first record."""
    fork_server().warm()
    with tempfile.TemporaryDirectory(prefix="harrow-bench-") as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as on a machine where it is installed
        _up_ms(environment)
        for _ in range(rounds):
            figures.add("start: `harrow up` ready, ms", peers.HARROW, _up_ms(environment))
    for _ in range(rounds):
        budget.step(STEP_S)
        begun = time.perf_counter()
        with peers.harrow() as peer:
            ready = time.perf_counter()
            AdminClient({"bootstrap.servers": peer.bootstrap_servers}).list_topics(timeout=10)
            metadata = time.perf_counter()
            topic = load.make_topic(peer)
            producer = Producer(
                {"bootstrap.servers": peer.bootstrap_servers, "acks": "all", "linger.ms": 0, "log_level": 0}
            )
            producer.produce(topic, b"first")
            if producer.flush(30):
                raise ExceededError("no acknowledgement of the first record in 30 s")
            record = time.perf_counter()
        figures.add("start: ready, ms", peer.name, (ready - begun) * 1e3)
        figures.add("start: to first metadata, ms", peer.name, (metadata - begun) * 1e3)
        figures.add("start: to first acks=all record, ms", peer.name, (record - begun) * 1e3)


def _up_ms(environment: dict[str, str]) -> float:
    begun = time.perf_counter()
    command = [str(Path(sys.executable).with_name("harrow")), "up", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as up:
        assert up.stdout is not None
        line = up.stdout.readline()
        took = (time.perf_counter() - begun) * 1e3
        up.terminate()
    if not line or not json.loads(line)["brokers"]:
        raise ExceededError(f"`harrow up` said {line!r}")
    return took


def warm_up(peer: Peer, messages: int, budget: Budget, seconds: float) -> None:
    """Runs the measured load until neither rate increases."""
    end = time.perf_counter() + seconds
    topics = {size: load.make_topic(peer) for size in SIZES}
    best: dict[str, float] = {}
    first: dict[str, float] = {}
    rounds = idle = 0
    while (rounds < WARM_LEAST or idle < 2) and time.perf_counter() < end:
        gained = False
        for name, size in SIZES.items():
            count = messages * 100 // max(100, size // 5)
            rate = load.produce(peer, topics[name], size, count, budget.step(STEP_S))
            gained |= rate > best.get(name, 0.0) * WARM_GAIN
            best[name] = max(rate, best.get(name, 0.0))
            first.setdefault(name, rate)
        sender = load.OneAtATime(peer.bootstrap_servers, topics[SMALL])
        load.repeat(sender.send, 800, budget.step(STEP_S))
        rounds, idle = rounds + 1, 0 if gained else idle + 1
    gain = ", ".join(f"{n} {first[n] / 1e3:,.0f} -> {best[n] / 1e3:,.0f} k msg/s" for n in first)
    print(f"{peer.name} warm after {rounds} rounds: {gain}", flush=True)


def measure_load(figures: Figures, running: list[Peer], options: argparse.Namespace, budget: Budget) -> None:
    """Runs rounds of the load in which the peers take turns."""
    for number in range(options.rounds):
        turn = number % len(running)
        for peer in [*running[turn:], *running[:turn]]:
            topics = {name: load.make_topic(peer) for name in SIZES}
            for name, topic in topics.items():
                _produced(figures, peer, name, topic, options.messages, budget)
            for name in SIZES:
                _consumed(figures, peer, name, options.messages, budget)
    measure_latency(figures, running, budget)
    for peer in running:
        for pid in peer.pids.values():
            figures.add("PSS of a broker after the run, MiB", peer.name, peers.pss_mib(pid))


def _produced(figures: Figures, peer: Peer, name: str, topic: str, messages: int, budget: Budget) -> None:
    rate, cpu = f"produce {name} acks=all, msg/s", f"produce {name}, broker CPU us/msg"
    count = messages if name == SMALL else messages // 2

    def work() -> None:
        before = peers.cpu_seconds(peer)
        figures.add(rate, peer.name, load.produce(peer, topic, SIZES[name], count, budget.step(STEP_S)))
        if peer.pids:
            figures.add(cpu, peer.name, (peers.cpu_seconds(peer) - before) / count * 1e6)

    attempt(figures, [rate], peer.name, work)


def _consumed(figures: Figures, peer: Peer, name: str, messages: int, budget: Budget) -> None:
    rate, cpu = f"consume {name}, msg/s", f"consume {name}, broker CPU us/msg"
    count = messages if name == SMALL else messages // 4

    def work() -> None:
        topic = load.make_topic(peer)
        load.fill(peer, topic, SIZES[name], count, budget.step(STEP_S))
        before = peers.cpu_seconds(peer)
        figures.add(rate, peer.name, load.consume(peer, topic, budget.step(STEP_S)))
        if peer.pids:
            figures.add(cpu, peer.name, (peers.cpu_seconds(peer) - before) / count * 1e6)

    attempt(figures, [rate], peer.name, work)


def measure_latency(figures: Figures, running: list[Peer], budget: Budget) -> None:
    """Measures the latency of single messages, in short turns of the peers."""
    deadline = budget.step(STEP_S * 2)
    times: dict[str, list[float]] = {}
    cpu: dict[str, float] = {}

    def turn(peer: Peer, sender: load.OneAtATime) -> None:
        before = peers.cpu_seconds(peer) if peer.pids else 0.0
        times[peer.name] += load.repeat(sender.send, TURN, deadline)
        if peer.pids:
            cpu[peer.name] = cpu.get(peer.name, 0.0) + peers.cpu_seconds(peer) - before

    def begin(peer: Peer) -> None:
        senders[peer.name] = load.OneAtATime(peer.bootstrap_servers, load.make_topic(peer))
        load.repeat(senders[peer.name].send, WARM_MESSAGES, deadline)
        times[peer.name] = []

    senders: dict[str, load.OneAtATime] = {}
    for peer in running:
        attempt(figures, LATENCY[:2], peer.name, partial(begin, peer))
    with bare_hops() as send:
        load.repeat(send, WARM_MESSAGES, deadline)
        bare: list[float] = []
        for number in range(TURNS):
            first = number % len(running)
            for peer in [*running[first:], *running[:first]]:
                if peer.name in times:
                    work = partial(turn, peer, senders[peer.name])
                    attempt(figures, LATENCY[:2], peer.name, work)
            bare += load.repeat(send, TURN, deadline)
    for name, found in times.items():
        if found:
            figures.add(LATENCY[0], name, load.quantile(found, 0.5))
            figures.add(LATENCY[1], name, load.quantile(found, 0.99))
            if name in cpu:
                figures.add(LATENCY[2], name, cpu[name] / len(found) * 1e6)
    middle, slowest = (load.quantile(bare, share) for share in (0.5, 0.99))
    print(f"bare hops: p50 {middle:.2f} ms, p99 {slowest:.2f} ms ({len(bare)} messages each)", flush=True)


FAILOVER = (
    "failover: kill to session's end, ms",
    "failover: session's end to leaders, ms",
    "failover: session's end to ack, ms",
    "failover: kill to ack less session timeout, ms",
)
OWN_REFRESH = "failover: that by librdkafka's own refresh, ms"


def measure_failover(figures: Figures, rounds: int, budget: Budget) -> None:
    """Measures failovers, each on a new cluster."""

    def work(phase_s: float) -> None:
        with peers.harrow({"zookeeper.session.timeout.ms": SESSION_MS}) as peer:
            times = load.fail_over(peer, budget.step(STEP_S), phase_s)
        assert times.session_end is not None and times.leaders is not None
        values = (times.session_end, times.leaders, times.ack - times.session_end, times.ack - SESSION_MS)
        for name, value in zip(FAILOVER, values, strict=True):
            figures.add(name, peer.name, value)

    def by_itself(phase_s: float) -> None:
        with peers.harrow({"zookeeper.session.timeout.ms": SESSION_MS}) as peer:
            times = load.fail_over(peer, budget.step(STEP_S), phase_s, {})
        figures.add(OWN_REFRESH, peer.name, times.ack - SESSION_MS)

    for number in range(rounds):
        attempt(figures, FAILOVER, peers.HARROW, partial(work, number / rounds))
        attempt(figures, [OWN_REFRESH], peers.HARROW, partial(by_itself, number / rounds))


def _kafka_failover(figures: Figures, kafka: Peer, budget: Budget) -> None:
    def work() -> None:
        times = load.fail_over(kafka, budget.step(STEP_S))
        figures.add(FAILOVER[3], kafka.name, times.ack - peers.KAFKA_SESSION_MS)

    # Only one broker of this cluster can be killed, so librdkafka's default has no second failover to measure.
    attempt(figures, FAILOVER[3:], kafka.name, work)


def _beside(figures: Figures, options: argparse.Namespace, budget: Budget, skip: set[str]) -> None:
    """Measures everything that needs peers that keep running."""
    makers = {peers.HARROW: peers.harrow, peers.KAFKA: peers.apache_kafka, peers.MOCK: peers.librdkafka_mock}
    left_out = {peers.KAFKA: "kafka" in skip, peers.MOCK: "mock" in skip}
    with ExitStack() as stack:
        running: list[Peer] = []
        for name, make in makers.items():
            if left_out.get(name):
                continue
            try:
                peer = stack.enter_context(make())
                warm_up(peer, options.messages, budget, options.warm)
                running.append(peer)
            except FAILED as error:
                print(f"{name} left out: {type(error).__name__}: {error}", flush=True)
                continue
            if name == peers.KAFKA:
                figures.add("start: ready, ms", name, peer.start_ms)
        if running:
            measure_load(figures, running, options, budget)
        for peer in running:
            if peer.name == peers.KAFKA and "failover" not in skip:
                _kafka_failover(figures, peer, budget)


def _terminated(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)  # raises SystemExit, so that every `finally` runs


def main() -> int:
    """Measures, prints the table, and compares with the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds a peer at the most")
    parser.add_argument("--limit", type=float, default=420.0, help="seconds of the whole run")
    parser.add_argument("--skip", default="", help="start, load, failover, kafka, mock")
    options = parser.parse_args()
    skip = set(options.skip.split(","))
    signal.signal(signal.SIGTERM, _terminated)
    signal.signal(signal.SIGHUP, _terminated)
    figures, budget = Figures(), Budget(options.limit)
    loads = [round(figure, 1) for figure in os.getloadavg()]
    print(f"load average {loads} on {os.cpu_count()} cores", flush=True)
    try:
        if "start" not in skip:
            names = ["start: ready, ms", "start: `harrow up` ready, ms"]
            work = partial(measure_start, figures, options.rounds, budget)
            attempt(figures, names, peers.HARROW, work)
        if "failover" not in skip:
            measure_failover(figures, FAILOVERS, budget)
        if "load" not in skip:
            _beside(figures, options, budget, skip)
    finally:
        missed = figures.report()
    for line in missed:
        print(f"MISSED: {line}")
    print(f"load average at the end {os.getloadavg()[0]:.1f}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
