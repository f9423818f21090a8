"""Produces numbered records during a fault, and checks afterwards which of them are in the topic."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition
from harrow import Harrow
from harrow.faults import Fault, Schedule
from harrow.harness.running_cluster import RunningCluster
from waiting import until

PER_SECOND = 400
ONE_IN_FLIGHT = {"max.in.flight": 1}
"""For an idempotent producer whose leader starts again and leads at once: a broker that starts has only the last batch
of a producer, Apache Kafka's too, and refuses retries of earlier ones (conformance/test_retries_after_a_restart.py)."""


def produce_numbers(servers: str, topic: str, values: range, **config: object) -> None:
    """Produces each number as a text to partition 0, with one of five keys, and waits for all acknowledgements."""
    _produce(_producer(servers, **config), topic, values)


def produce_while_faults_last(harrow: Harrow, topic: str, *faults: Fault, schedule: Schedule | None = None) -> None:
    """Produces with acks=all until the last fault, of `schedule` too, is healed; each of them must take effect.

    One producer for all of it: a fault of open connections meets nothing when each batch has new ones.
    """
    producer, sent = _producer(harrow.bootstrap_servers, acks="all"), 0
    with harrow.chaos(*faults, schedule=schedule) as chaos:
        while chaos.running:
            _produce(producer, topic, range(sent, sent + 20))
            sent += 20
    assert chaos.effects == len(faults if schedule is None else schedule.steps)


def _producer(servers: str, **config: object) -> Producer:
    settings: dict[str, object] = {"bootstrap.servers": servers, "linger.ms": 1, **config}
    return Producer(settings)  # pyright: ignore[reportArgumentType] - plain settings


def _produce(producer: Producer, topic: str, values: range) -> None:
    for value in values:
        producer.produce(topic, str(value), key=str(value % 5), partition=0)
        producer.poll(0.001)
    assert producer.flush(60) == 0


class Load:
    """An idempotent acks=all producer on its own thread, from the start of the block until everything is flushed."""

    def __init__(
        self, cluster: RunningCluster, topic: str, partitions: int = 1, servers: Any = "", **config: Any
    ) -> None:
        self.topic = topic
        self.delivered: dict[tuple[int, int], int] = {}
        """(partition, offset) -> number of the acknowledged record"""
        self.placeless: set[int] = set()
        """Acknowledged without an offset: the request failed, and librdkafka concluded from a later success that its
        records are there (`rd_kafka_dr_implicit_ack`; a stopped follower sometimes causes it)."""
        self.failed: list[str] = []
        """Delivery errors, as an application sees them."""
        self.sent = 0
        self._servers = servers or cluster.bootstrap_servers
        self._partitions = partitions
        settings = {
            "bootstrap.servers": self._servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._producer = Producer(settings | config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"load-{topic}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.more(50)
        except BaseException:
            self._stop.set()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(90)
        if error is None:
            assert not self._thread.is_alive(), f"{len(self._producer)} are still in flight"

    def more(self, count: int = 200) -> None:
        """Waits until `count` more records have been acknowledged."""
        wanted = len(self.delivered) + count
        until(lambda: len(self.delivered) >= wanted)

    def _run(self) -> None:
        while not self._stop.wait(1 / PER_SECOND):
            number = self.sent
            partition = number % self._partitions
            self._producer.produce(
                self.topic, str(number).encode(), partition=partition, on_delivery=self._delivery_report
            )
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(60)

    def _delivery_report(self, error: Any, message: Any) -> None:
        number, offset = int(message.value()), message.offset()
        if error is not None:
            self.failed.append(str(error))
        elif offset is None:
            self.placeless.add(number)
        else:
            place = message.partition(), offset
            if place in self.delivered:
                self.failed.append(f"{number} and {self.delivered[place]} are both acknowledged at {place}")
            self.delivered[place] = number

    def read_back(self) -> dict[tuple[int, int], int]:
        """Reads all records of the topic with a new client."""
        consumer = Consumer({"bootstrap.servers": self._servers, "group.id": "check", "enable.auto.commit": False})
        places = [TopicPartition(self.topic, number, 0) for number in range(self._partitions)]
        ends: dict[int, int] = {}
        for place in places:
            watermarks: Any = consumer.get_watermark_offsets(place, timeout=30)
            ends[place.partition] = watermarks[1]
        consumer.assign(places)
        found: dict[tuple[int, int], int] = {}
        while len(found) < sum(ends.values()):
            message: Any = consumer.poll(30)
            assert message is not None, f"{len(found)} of {sum(ends.values())} records came"
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = int(message.value())
        consumer.close()
        return found

    def exactly_once(self) -> None:
        """Asserts that every record was delivered and is stored once, at its acknowledged offset, in sending order."""
        assert self.failed == []
        acknowledged = len(self.delivered) + len(self.placeless)
        assert acknowledged == self.sent, f"{len(self._producer)} are still in flight"
        found = self.read_back()
        lost = [f"{n} was acknowledged at {at}" for at, n in self.delivered.items() if found.get(at) != n]
        assert not lost, "; ".join(lost)
        assert {number for at, number in found.items() if at not in self.delivered} == self.placeless
        for partition in range(self._partitions):
            row = [found[at] for at in sorted(found) if at[0] == partition]
            assert row == list(range(partition, self.sent, self._partitions))
