"""The load of the benchmarks: confluent-kafka clients against any `Peer`, every step bounded by a deadline.

A step that exceeds its deadline raises `ExceededError`, whose text contains the results until then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow.cluster import Cluster
from harrow.cluster.broker_folder import REGISTRY, TRACE
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.controllers import RegistrySessionExpired
from harrow.cluster.events.partitions import PartitionLeader
from harrow.harness.histories.trace_events import read_trace
from peers import Peer

E = TypeVar("E", bound=TraceEvent)
PARTITIONS = 4
FILL_BATCH = 500
FAILOVER_PARTITIONS = 12
QUICK_CLIENT = {
    "acks": "all",
    "linger.ms": 0,
    "message.timeout.ms": 30_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
"""Settings of the producer in a failover: back-offs far below the session timeout, so that they do not add to it."""
REFRESHES_OFTEN = {"topic.metadata.refresh.interval.ms": 100}
"""librdkafka refreshes its metadata once a second. librdkafka 2.16 also discards the refreshed leaders when the old
leader has left the list of brokers: it decommissions that broker and resets the partitions that are moving away from
it to "no leader". Together that takes up to two seconds that no cluster can avoid, so this setting refreshes sooner."""


class ExceededError(Exception):
    """A step did not finish before its deadline."""


class Budget:
    """The time limit of a whole run and of its steps."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    def step(self, seconds: float) -> float:
        """Returns the deadline of a step: `seconds` from the current time, or the end of the run if that is earlier."""
        now = time.perf_counter()
        if now >= self._end:
            raise ExceededError("the time of the run is up (--limit)")
        return min(now + seconds, self._end)


def make_topic(peer: Peer, partitions: int = PARTITIONS) -> str:
    """Creates a new topic with three replicas."""
    name = f"bench-{uuid4().hex[:8]}"
    if not peer.pids:
        return name  # the mock creates topics of four partitions when they are asked for
    admin: Any = AdminClient({"bootstrap.servers": peer.bootstrap_servers, **peer.client})
    futures: Any = admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=3)])
    futures[name].result(30)
    return name


def _producer(peer: Peer, **settings: Any) -> Producer:
    common = {
        "bootstrap.servers": peer.bootstrap_servers,
        "acks": "all",
        "log_level": 0,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_048_576,
        **peer.client,
    }
    return Producer(common | settings)


def produce(peer: Peer, topic: str, size: int, count: int, deadline: float) -> float:
    """Produces with acks=all; returns messages per second."""
    failed: list[object] = []
    producer = _producer(peer, **{"linger.ms": 5})

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    value = os.urandom(size)
    for _ in range(1000):
        producer.produce(topic, value, on_delivery=delivered)
    _flush(producer, peer, deadline)
    begun = time.perf_counter()
    for i in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
                if time.perf_counter() > deadline:
                    _flush(producer, peer, deadline)
        if i % 1000 == 0:
            producer.poll(0)
    _flush(producer, peer, deadline)
    if failed:
        raise ExceededError(f"{len(failed)} messages failed, the first with {failed[0]}")
    return count / (time.perf_counter() - begun)


def _flush(producer: Producer, peer: Peer, deadline: float) -> None:
    left = producer.flush(max(0.01, deadline - time.perf_counter()))
    if left:
        producer.purge()
        producer.flush(1)
        raise ExceededError(f"{left} messages not acknowledged by {peer.name} in time")


def fill(peer: Peer, topic: str, size: int, count: int, deadline: float) -> None:
    """Produces `count` messages for `consume`, in batches of the same size on every peer.

    The rate of a consumer depends mostly on the size of the batches: the producer of a slow cluster has long queues and
    makes larger batches, which are faster to consume.
    """
    settings = {"linger.ms": 100, "batch.num.messages": FILL_BATCH, "batch.size": FILL_BATCH * (size + 100)}
    producer = _producer(peer, **settings)
    value = os.urandom(size)
    for number in range(count):
        producer.produce(topic, value, partition=number // FILL_BATCH % PARTITIONS)
        if number % FILL_BATCH == 0:
            producer.poll(0)
    _flush(producer, peer, deadline)


def consume(peer: Peer, topic: str, deadline: float) -> float:
    """Consumes a topic from its first retained record to its last; returns messages per second.

    By default librdkafka stops fetching for a second (`fetch.queue.backoff.ms`) once its queue has 64 MiB or 100,000
    messages. A quick cluster fills the queue before this loop empties it; the figure would then show that second.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap_servers,
            "group.id": uuid4().hex,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "fetch.message.max.bytes": 4_194_304,
            "fetch.queue.backoff.ms": 1,
            "enable.auto.commit": False,
            **peer.client,
        }
    )
    try:
        count, starts = 0, list[TopicPartition]()
        for partition in range(PARTITIONS):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            count += high - low
            starts.append(TopicPartition(topic, partition, low))
        consumer.assign(starts)
        got, first, begun = 0, 0, 0.0
        while got < count:
            batch = consumer.consume(10_000, 1.0)
            got += sum(1 for m in batch if m.error() is None)
            if got and not first:
                first, begun = got, time.perf_counter()
            if time.perf_counter() > deadline:
                raise ExceededError(f"{got} of {count} messages read from {peer.name} in time")
        return (got - first) / (time.perf_counter() - begun)
    finally:
        consumer.close()


class OneAtATime:
    """Sends a message with acks=all only after the message before was acknowledged."""

    def __init__(
        self, bootstrap_servers: str, topic: str, patience_s: float = 10.0, client: Mapping[str, str] | None = None
    ) -> None:
        settings = {"acks": "all", "linger.ms": 0, "log_level": 0, **(client or {})}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._topic = topic
        self._patience_s = patience_s

    def send(self) -> float:
        """Sends a message; returns the milliseconds until its acknowledgement."""
        begun = time.perf_counter()
        self._producer.produce(self._topic, b"x" * 100, partition=0)
        if self._producer.flush(self._patience_s):
            self._producer.purge()
            self._producer.flush(1)
            raise ExceededError(f"a message was not acknowledged within {self._patience_s:g} s")
        return (time.perf_counter() - begun) * 1e3


def quantile(values: Iterable[float], share: float) -> float:
    """Returns the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def repeat(call: Callable[[], float], count: int, deadline: float) -> list[float]:
    """Calls a function `count` times and returns the results; ExceededError at the deadline."""
    given: list[float] = []
    for _ in range(count):
        given.append(call())
        if time.perf_counter() > deadline:
            raise ExceededError(f"{len(given)} of {count} messages acknowledged in time")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The times of a leader's death, in milliseconds; without the registry's trace only `ack` has a value."""

    ack: float
    """From the kill to the next acknowledged record."""
    session_end: float | None = None
    """From the kill to the end of the dead broker's session."""
    leaders: float | None = None
    """From the end of that session to the last of the new leaders."""


def fail_over(
    peer: Peer, deadline: float, phase_s: float = 0.0, look_out: Mapping[str, Any] = REFRESHES_OFTEN
) -> Failover:
    """Kills the leader of partition 0 while a producer has a message to send.

    librdkafka refreshes its metadata once a second, counted from the creation of the producer; `phase_s` is the time of
    the kill within this second.
    """
    topic = make_topic(peer, FAILOVER_PARTITIONS)
    settings: dict[str, Any] = {"bootstrap.servers": peer.bootstrap_servers, **QUICK_CLIENT, **look_out}
    made = time.perf_counter()
    producer = Producer(settings)
    producer.produce(topic, b"before", partition=0)
    _flush(producer, peer, deadline)
    if peer.cluster is not None:
        peer.cluster.await_full_isr()
    metadata: Any = producer.list_topics(topic, timeout=10)
    rows = metadata.topics[topic].partitions
    leader = rows[0].leader
    led = {number for number, row in rows.items() if row.leader == leader}
    assert peer.kill is not None
    time.sleep((phase_s - (time.perf_counter() - made)) % 1.0)
    killed_ns = time.monotonic_ns()
    peer.kill(leader)
    producer.produce(topic, b"after", partition=0)
    _flush(producer, peer, deadline)
    ack = (time.monotonic_ns() - killed_ns) / 1e6
    if peer.cluster is None:
        return Failover(ack=ack)
    expired_ns = _expired_ns(peer.cluster, leader, killed_ns)
    elected_ns = _elected_ns(peer.cluster, topic, led, killed_ns, deadline)
    return Failover(ack=ack, session_end=(expired_ns - killed_ns) / 1e6, leaders=(elected_ns - expired_ns) / 1e6)


def _trace(folder: Path, kind: type[E], since_ns: int) -> list[TracedEvent[E]]:
    return [row for row in read_trace(folder / TRACE, kinds=(kind,)) if row.t_ns >= since_ns]


def _expired_ns(cluster: Cluster, node: int, since_ns: int) -> int:
    rows = _trace(cluster.folder / REGISTRY, RegistrySessionExpired, since_ns)
    return min(row.t_ns for row in rows if row.event.name == f"broker {node}")


def _elected_ns(cluster: Cluster, topic: str, led: set[int], since_ns: int, deadline: float) -> int:
    """Returns when the last partition that the dead broker led had a new leader, from the traces of the new leaders."""
    while True:
        times: dict[int, int] = {}
        for node in cluster.brokers:
            for row in _trace(cluster.folder / f"broker-{node}", PartitionLeader, since_ns):
                if row.event.topic == topic and row.event.partition in led:
                    times.setdefault(row.event.partition, row.t_ns)
        if set(times) == led:
            return max(times.values())
        if time.perf_counter() > deadline:
            raise ExceededError(f"no new leader of {topic} {sorted(led - set(times))} in time")
        time.sleep(0.01)
