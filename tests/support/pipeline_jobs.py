"""A service that bills orders, parts of which can be replaced by wrong ones, and what a verdict on it must say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from harrow import Harrow, Record, Topic, Verdict, VerdictError

ORDERS = 60
LIMIT_S = 30.0


def place_orders(harrow: Harrow, orders: Topic, count: int = ORDERS, first: int = 0) -> list[int]:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        order = {"order": number, "customer": f"c{number % 4}", "amount": number % 7}
        producer.produce(orders.name, json.dumps(order), key=f"c{number % 4}")
    assert producer.flush(30) == 0
    return list(range(first, first + count))


def bill_of(order: dict[str, Any] | Record) -> dict[str, Any]:
    return {"order": order["order"], "total": order["amount"] * 3}


class CrashError(Exception):
    """The job ends here."""


class Job:
    """A service that reads orders in batches and writes bills; its parts can be replaced by wrong ones."""

    def __init__(self, harrow: Harrow, orders: Topic, write: Callable[[list[Message]], None]) -> None:
        self.harrow = harrow
        self.orders = orders
        self.write = write
        self.commit_first = False
        self.crash_after = -1
        """Crash between the two steps of the batch in which the count of read orders passes this number."""
        self.reset = "earliest"
        self.group = "billing"

    def run(self, until: int) -> int:
        """Read until `until` records were read, or the end; returns how many were read."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.harrow.bootstrap_servers,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": self.reset,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        read = 0
        try:
            consumer.subscribe([self.orders.name])
            ended: set[int] = set()
            while read < until and len(ended) < self.orders.partitions:
                batch: list[Message] = []
                for message in consumer.consume(10, 1.0):
                    error = message.error()
                    if error is None:
                        batch.append(message)
                        ended.discard(message.partition() or 0)
                    else:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        ended.add(message.partition() or 0)
                if not batch:
                    continue
                read += len(batch)
                crashes = 0 <= self.crash_after < read
                steps = [partial(self.write, batch), partial(consumer.commit, asynchronous=False)]
                if self.commit_first:
                    steps.reverse()
                steps[0]()
                if crashes:
                    raise CrashError
                steps[1]()
        finally:
            consumer.close()
        return read


def to_topic(harrow: Harrow, bills: Topic, bill: Callable[[Any], Any] = bill_of) -> Callable[[list[Message]], None]:
    """Write the bills of a batch to a topic, and wait for their acknowledgements."""
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})

    def write(batch: list[Message]) -> None:
        for message in batch:
            found = bill(json.loads(message.value() or b""))
            producer.produce(bills.name, json.dumps({**found, "processed_at": "now"}), key=message.key())
        assert producer.flush(30) == 0

    return write


@contextlib.contextmanager
def expected_anomalies(*names: str) -> Generator[list[Verdict]]:
    """Expect an invalid verdict with exactly these anomalies."""
    caught: list[Verdict] = []
    with pytest.raises(VerdictError) as raised:
        yield caught
    verdict = raised.value.verdict
    assert verdict is not None
    assert verdict.anomaly_names() == set(names), str(raised.value)
    assert verdict.status.value == "invalid", str(raised.value)
    caught.append(verdict)


def explanations(verdict: Verdict) -> str:
    return "\n".join(anomaly.explanation for anomaly in verdict.anomalies)
