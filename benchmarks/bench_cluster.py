"""A cluster of ours beside a warm Apache Kafka and librdkafka's mock, in one run.

    python benchmarks/bench_cluster.py [--messages 400000] [--rounds 3] [--skip start,produce,…]

Prints for each figure: ours, each peer's, and the ratio ours / Kafka's. Every peer is warmed up by the
same load first, rounds alternate between the peers, medians are printed.

* start: cluster ready to first metadata, to first acks=all record, from a warm fork server;
  `harrow up` from the shell to its ready line
* produce: acks=all RF=3 messages a second at 100 B and 1 KiB; consume: messages a second
* latency: one message at a time, acks=all, p50 and p99
* memory: PSS of a broker after the run
* failover: leader killed -> next acknowledged record, beside the session timeout
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import peers
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster.supervisor import fork_server

PARTITIONS = 4
Rows = dict[str, dict[str, list[float]]]


def make_topic(peer: peers.Peer) -> str:
    name = f"bench-{uuid4().hex[:8]}"
    if not peer.pids:
        return name  # the mock creates topics of four partitions when they are asked for
    admin: Any = AdminClient({"bootstrap.servers": peer.bootstrap_servers})
    futures: Any = admin.create_topics(
        [NewTopic(name, num_partitions=PARTITIONS, replication_factor=3)]
    )
    futures[name].result(30)
    return name


def produce(peer: peers.Peer, topic: str, size: int, count: int) -> float:
    """Messages a second, acks=all."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": peer.bootstrap_servers, "acks": "all", "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000, "queue.buffering.max.kbytes": 1_048_576,
        }
    )  # fmt: skip

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    value = os.urandom(size)
    for _ in range(1000):
        producer.produce(topic, value, on_delivery=delivered)
    producer.flush(30)
    begun = time.perf_counter()
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if i % 1000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    assert left == 0 and not failed, (peer.name, left, failed[:3])
    return count / (time.perf_counter() - begun)


def consume(peer: peers.Peer, topic: str, count: int) -> float:
    """Messages a second of one consumer from the beginning."""
    consumer = Consumer(
        {"bootstrap.servers": peer.bootstrap_servers, "group.id": uuid4().hex, "auto.offset.reset": "earliest",
         "fetch.message.max.bytes": 4_194_304, "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    got, begun, deadline = 0, 0.0, time.perf_counter() + 120
    while got < count and time.perf_counter() < deadline:
        batch = consumer.consume(10_000, 1.0)
        if batch and not got:
            begun = time.perf_counter()
        got += sum(1 for m in batch if m.error() is None)
    took = time.perf_counter() - begun
    consumer.close()
    assert got >= count, (peer.name, got, count)
    return got / took


def latency(peer: peers.Peer, topic: str, count: int = 2000) -> tuple[float, float]:
    """(p50, p99) of one message at a time in milliseconds."""
    producer = Producer(
        {"bootstrap.servers": peer.bootstrap_servers, "acks": "all", "linger.ms": 0}
    )
    times: list[float] = []
    for _ in range(count + 200):
        begun = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        assert producer.flush(10) == 0
        times.append((time.perf_counter() - begun) * 1e3)
    kept = sorted(times[200:])
    return kept[len(kept) // 2], kept[int(len(kept) * 0.99)]


def failover(peer: peers.Peer, topic: str) -> float:
    """Leader of partition 0 killed -> next acknowledged record, in milliseconds."""
    producer = Producer(
        {"bootstrap.servers": peer.bootstrap_servers, "acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000,
         "retry.backoff.ms": 20, "retry.backoff.max.ms": 50, "reconnect.backoff.ms": 20,
         "reconnect.backoff.max.ms": 100, "topic.metadata.refresh.fast.interval.ms": 50}
    )  # fmt: skip
    producer.produce(topic, b"before", partition=0)
    assert producer.flush(30) == 0
    metadata: Any = producer.list_topics(topic, timeout=10)
    leader = metadata.topics[topic].partitions[0].leader
    assert peer.kill is not None
    peer.kill(leader)
    begun = time.perf_counter()
    producer.produce(topic, b"after", partition=0)
    assert producer.flush(60) == 0, peer.name
    return (time.perf_counter() - begun) * 1e3


def measure_start(rows: Rows, rounds: int) -> None:
    fork_server().warm()
    for _ in range(rounds):
        begun = time.perf_counter()
        with peers.harrow() as peer:
            ready = time.perf_counter()
            AdminClient({"bootstrap.servers": peer.bootstrap_servers}).list_topics(timeout=10)
            metadata = time.perf_counter()
            topic = make_topic(peer)
            producer = Producer(
                {"bootstrap.servers": peer.bootstrap_servers, "acks": "all", "linger.ms": 0}
            )
            producer.produce(topic, b"first")
            assert producer.flush(30) == 0
            record = time.perf_counter()
        add(rows, "start: ready, ms", "harrow", (ready - begun) * 1e3)
        add(rows, "start: to first metadata, ms", "harrow", (metadata - begun) * 1e3)
        add(rows, "start: to first acks=all record, ms", "harrow", (record - begun) * 1e3)
        begun = time.perf_counter()
        command = [str(Path(sys.executable).with_name("harrow")), "up", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
            assert up.stdout is not None
            json.loads(up.stdout.readline())
            add(rows, "start: `harrow up` ready, ms", "harrow", (time.perf_counter() - begun) * 1e3)
            up.terminate()


def add(rows: Rows, figure: str, peer: str, value: float) -> None:
    rows.setdefault(figure, {}).setdefault(peer, []).append(value)


def measure_load(rows: Rows, running: list[peers.Peer], options: argparse.Namespace) -> None:
    for peer in running:
        warm = make_topic(peer)
        for _ in range(options.warm):
            produce(peer, warm, 100, options.messages)
            produce(peer, warm, 1024, options.messages // 2)
    for _ in range(options.rounds):
        for peer in running:
            topic, big = make_topic(peer), make_topic(peer)
            add(
                rows,
                "produce 100 B acks=all, msg/s",
                peer.name,
                produce(peer, topic, 100, options.messages),
            )
            add(
                rows,
                "produce 1 KiB acks=all, msg/s",
                peer.name,
                produce(peer, big, 1024, options.messages // 2),
            )
            add(rows, "consume 100 B, msg/s", peer.name, consume(peer, topic, options.messages))
            add(rows, "consume 1 KiB, msg/s", peer.name, consume(peer, big, options.messages // 2))
            p50, p99 = latency(peer, make_topic(peer))
            add(rows, "latency p50, ms", peer.name, p50)
            add(rows, "latency p99, ms", peer.name, p99)
    for peer in running:
        for pid in peer.pids.values():
            add(rows, "PSS of a broker after the run, MiB", peer.name, peers.pss_mib(pid))


def report(rows: Rows) -> None:
    print(f"\n{'figure':<42}{'harrow':>12}{'kafka':>12}{'mock':>12}{'ours/kafka':>12}")
    for figure, by_peer in rows.items():
        values = {name: median(found) for name, found in by_peer.items()}
        kafka = values.get("apache kafka")
        ratio = f"{values['harrow'] / kafka:.2f}x" if kafka and "harrow" in values else "-"
        cells = [values.get(n) for n in ("harrow", "apache kafka", "librdkafka mock")]
        shown = "".join(
            f"{'-' if c is None else f'{c:,.2f}' if c < 100 else f'{c:,.0f}':>12}" for c in cells
        )
        print(f"{figure:<42}{shown}{ratio:>12}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--skip", default="", help="start, load, failover, kafka, mock")
    options = parser.parse_args()
    skip = set(options.skip.split(","))
    rows: Rows = {}
    if "start" not in skip:
        measure_start(rows, options.rounds)
    if "load" not in skip:
        with ExitStack() as stack:
            running: list[peers.Peer] = [stack.enter_context(peers.harrow())]
            kafka = None if "kafka" in skip else stack.enter_context(peers.apache_kafka())
            running += [kafka] if kafka else []
            running += [] if "mock" in skip else [stack.enter_context(peers.librdkafka_mock())]
            measure_load(rows, running, options)
    if "failover" not in skip:
        measure_failover(rows, options.rounds)
    report(rows)


def measure_failover(rows: Rows, rounds: int) -> None:
    timeout_ms = 300

    def run(peer: peers.Peer) -> float:
        return failover(peer, make_topic(peer))

    for _ in range(rounds):
        with peers.harrow({"zookeeper.session.timeout.ms": timeout_ms}) as peer:
            add(rows, f"failover, session {timeout_ms} ms, ms", "harrow", run(peer))


if __name__ == "__main__":
    main()
