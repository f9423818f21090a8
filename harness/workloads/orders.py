"""A small application for `harrow chaos`: one producer of orders and one consumer in a group.

Owns: two threads, which run inside the `with` block, and the counts of their operations. The values depend only
on the seed; the keys are customers, so that order by key can be judged. Both clients record their history.

What may fail: no error here ends the run. After a fatal error of the idempotent producer the workload adds it to
`problems` and creates a new producer. `ResendingWorkload` then also sends again what it was not sure of.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..checks import Verdict
    from ..clients.consumer import Consumer
    from ..clients.producer import Producer
    from ..run.harrow import Harrow
    from ..topics import Topic

CUSTOMERS = 20
QUEUE_MOST = 500
"""Maximum number of orders in flight: every partition has traffic, and a pause stops the producer soon."""
COMMIT_EVERY = 200
FLUSH_S = 80
RESENDING_RATE = 100
"""Few orders each second, so that each has a request of its own: librdkafka sends a queue in one request at a time."""
VALUES = 64
"""So many texts are generated, because a producer is faster than a generator; each order adds its number."""

PRODUCER: dict[str, Any] = {
    "log_level": 0,
    "acks": "all",
    "linger.ms": 2,
    "message.timeout.ms": 60_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 3_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
CONSUMER: dict[str, Any] = {
    "log_level": 0,
    "session.timeout.ms": 3_000,
    "heartbeat.interval.ms": 500,
    "enable.auto.commit": False,
    "socket.timeout.ms": 3_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}


@dataclass(slots=True)
class WorkloadCounts:
    """Counts of the operations so far."""

    sent: int = 0
    acknowledged: int = 0
    unsure: int = 0
    received: int = 0
    problems: list[str] = field(default_factory=list[str])


class Workload:
    """Sends and reads orders in `topic` until it is stopped, at most `rate` orders each second.

    `value`: the value of the n-th order, a sentence by default. Without a `group` no consumer reads the topic.
    """

    def __init__(
        self,
        harrow: Harrow,
        topic: Topic,
        *,
        group: str | None = "orders-app",
        rate: int = 2000,
        producer: dict[str, Any] | None = None,
        value: Callable[[int], str] | None = None,
    ) -> None:
        self.counts = WorkloadCounts()
        self.problems: list[str] = []
        """None: what its clients report (`counts.problems`) is judged by its effect."""
        self._harrow = harrow
        self._topic = topic
        self._interval_s = 1 / rate
        self._random = harrow.random
        self._new_producer = partial(harrow.producer, **{**PRODUCER, "client.id": "orders", **(producer or {})})
        self._producer = self._new_producer()
        calls: dict[str, Callable[[], None]] = {"produce": self._produce}
        if group is not None:
            settings = {**CONSUMER, "group.id": group, "client.id": group}
            consumer = harrow.consumer(**settings)
            calls["consume"] = partial(self._consume, consumer)
        self._values = [harrow.values.sentence(12) for _ in range(VALUES)]
        self._value = value or self._sentence
        self._keys = [harrow.values.user_name() for _ in range(CUSTOMERS)]
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(call,), name=f"workload-{name}", daemon=True)
            for name, call in calls.items()
        ]

    def __enter__(self) -> Workload:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def judge(self, guarantee: str) -> Verdict:
        """Judge the topics of the run; raise VerdictError unless the verdict is valid."""
        return self._harrow.verify(guarantee=guarantee)

    def stop(self) -> None:
        """End both threads after the orders in flight have their delivery reports."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(90)

    def _guard(self, call: Any) -> None:
        try:
            call()
        except Exception as error:  # the counts report it; the verdict judges the effect
            self.counts.problems.append(f"{type(error).__name__}: {error}")

    def _produce(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        ended = False
        while not ended:
            try:
                self._produce_until_stopped(self._producer)
                ended = True
            except KafkaException as error:
                cause = error.args[0]
                if not (cause.fatal() or cause.code() == KafkaError._FATAL):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - confluent's public name
                    raise
                # brokers that lost records refuse the next sequence numbers: an application creates a new producer
                self.counts.problems.append(f"fatal: {error}")
                with suppress(KafkaException):
                    self._producer.flush(FLUSH_S)
                ended = self._stop.is_set()
                if not ended:
                    self._producer = self._new_producer()

    def _produce_until_stopped(self, producer: Producer) -> None:
        counts = self.counts
        while not self._stop.is_set():
            while len(producer) < QUEUE_MOST and not self._stop.is_set():
                value, key = self._next()
                producer.produce(self._topic.name, value, key, on_delivery=self._delivered)
                counts.sent += 1
                producer.poll(0)
                self._stop.wait(self._interval_s)
            producer.poll(0.01)
        producer.flush(FLUSH_S)

    def _next(self) -> tuple[Any, Any]:
        """Return value and key of the next order."""
        return self._value(self.counts.sent), self._random.choice(self._keys)

    def _sentence(self, number: int) -> str:
        return f"{number} {self._random.choice(self._values)}"

    def _delivered(self, error: Any, message: Any) -> None:
        del message
        if error is None:
            self.counts.acknowledged += 1
        else:
            self.counts.unsure += 1

    def _consume(self, consumer: Consumer) -> None:
        try:
            self._consume_until_stopped(consumer)
        finally:
            consumer.close()

    def _consume_until_stopped(self, consumer: Consumer) -> None:
        from confluent_kafka import KafkaException

        counts = self.counts
        consumer.subscribe([self._topic.name])
        while not self._stop.is_set():
            got = [m for m in consumer.consume(500, 0.05) if m.error() is None]
            before, counts.received = counts.received, counts.received + len(got)
            if got and counts.received // COMMIT_EVERY != before // COMMIT_EVERY:
                try:
                    consumer.commit(asynchronous=True)
                except KafkaException as error:  # the coordinator is unavailable; a later commit covers this one
                    counts.problems.append(f"commit: {error}")


class ResendingWorkload(Workload):
    """An application that sends an order again when its delivery report is an error, and judges by order.

    An order whose report comes while the workload stops is not sent again.
    """

    def __init__(self, harrow: Harrow, topic: Topic, *, producer: dict[str, Any]) -> None:
        super().__init__(harrow, topic, rate=RESENDING_RATE, producer={**producer, "linger.ms": 0}, value=order_text)
        self._orders = 0
        self._unsure: deque[tuple[Any, Any]] = deque()
        """Value and key of each order that is to be sent again."""

    def judge(self, guarantee: str) -> Verdict:
        """Judge the topic by the numbers of orders; raise VerdictError unless the verdict is valid."""
        return self._harrow.verify(self._topic, guarantee=guarantee, record_id="order")

    def _next(self) -> tuple[Any, Any]:
        if self._unsure:
            return self._unsure.popleft()
        self._orders += 1
        return order_text(self._orders), self._random.choice(self._keys)

    def _delivered(self, error: Any, message: Any) -> None:
        super()._delivered(error, message)
        if error is not None:
            self._unsure.append((message.value(), message.key()))


def order_text(number: int) -> str:
    """Return the JSON text of an order."""
    return json.dumps({"order": number, "amount": number % 7})
