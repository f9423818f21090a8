"""Pipelines with retry topics, and with a source that was created again (H8, L5, L6).

All tests share a cluster of one broker; each has topics of its own.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from harrow import Harrow, Topic, VerdictError, mapped
from pipeline_jobs import LIMIT_S, ORDERS, Job, bill_of, expected_anomalies, explanations, place_orders, to_topic
from waiting import until


@pytest.fixture(scope="module")
def harrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harrow]:
    with Harrow(tmp_path_factory.mktemp("shop") / "run", brokers=1) as shop:
        yield shop


_numbers = itertools.count()


@pytest.fixture
def orders(harrow: Harrow) -> Topic:
    return harrow.topic(f"orders{next(_numbers)}", partitions=2)


@pytest.fixture
def bills(harrow: Harrow) -> Topic:
    return harrow.topic(f"bills{next(_numbers)}", partitions=2)


def retrying(harrow: Harrow, bills: Topic, retries: Topic, *, gives_up: bool) -> Callable[[list[Message]], None]:
    """Return a writer that sends every tenth order to a retry topic, and writes its bill when it comes back."""
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})

    def write(batch: list[Message]) -> None:
        for message in batch:
            order = json.loads(message.value() or b"")
            again = message.topic() == retries.name
            if order["order"] % 10 == 3 and not again:
                producer.produce(retries.name, message.value(), key=message.key())
            elif not (again and gives_up):
                producer.produce(bills.name, json.dumps(bill_of(order)), key=message.key())
        assert producer.flush(30) == 0

    return write


@pytest.mark.parametrize("gives_up", [False, True], ids=["works on it later", "gives up"])
def test_commits_of_inputs_that_a_retry_topic_has_are_allowed(
    harrow: Harrow, orders: Topic, bills: Topic, gives_up: bool
) -> None:
    retries = harrow.topic(f"{orders.name}.retry")
    place_orders(harrow, orders)
    write = retrying(harrow, bills, retries, gives_up=gives_up)
    Job(harrow, orders, write).run(ORDERS)
    Job(harrow, retries, write).run(ORDERS // 10)
    promise = partial(harrow.verify_pipeline, orders, bills, record_id="order", relation=mapped(bill_of))
    if gives_up:
        with expected_anomalies("missing-output") as caught:
            promise(retry_topics=retries)
        assert caught[0].anomaly_counts["missing-output"] == ORDERS // 10
        return
    promise(retry_topics=[retries])
    with expected_anomalies("commit-before-output") as caught:
        promise()
    assert caught[0].anomaly_counts["commit-before-output"] == ORDERS // 10


def test_commits_before_a_topic_was_created_again_are_not_about_its_records(
    harrow: Harrow, orders: Topic, bills: Topic
) -> None:
    place_orders(harrow, orders)
    Job(harrow, orders, to_topic(harrow, bills)).run(ORDERS)
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    admin.delete_topics([orders.name])[orders.name].result(LIMIT_S)
    until(lambda: orders.name not in admin.list_topics(timeout=LIMIT_S).topics, "the topic is deleted")
    again, later = harrow.topic(orders.name, partitions=2), harrow.topic(f"{bills.name}.later")
    place_orders(harrow, again, first=ORDERS)
    job = Job(harrow, again, to_topic(harrow, later))
    job.group = "billing-later"
    assert job.run(ORDERS) == ORDERS
    with pytest.raises(VerdictError) as raised:
        harrow.verify_pipeline(again, later, record_id="order", relation=mapped(bill_of))
    verdict = raised.value.verdict
    assert verdict is not None
    assert not verdict.anomaly_counts, verdict
    assert "the commits of group billing-later were compared with the outputs" in verdict.notes
    assert {"deleted and created again" in reason for reason in verdict.reasons} == {True}, verdict


def headers(attempts: int, due_ms: int, reason: str = "no such customer") -> dict[str, str]:
    return {
        "retry_topic-attempts": str(attempts),
        "retry_topic-backoff-timestamp": str(due_ms),
        "kafka_exception-message": reason,
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class RetryQueue:
    """A worker and a scheduler in one: it writes what a correct flow has, except for the orders in `wrong`."""

    def __init__(self, harrow: Harrow, orders: Topic, bills: Topic, wrong: Iterable[int]) -> None:
        self.delay, self.due = harrow.topic(f"{orders}-delay"), harrow.topic(f"{orders}-retry")
        self.dead = harrow.topic(f"{orders}-dead")
        self._bills = bills
        self._wrong = set(wrong)
        self._servers = harrow.bootstrap_servers
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})

    def write(self, batch: list[Message]) -> None:
        for message in batch:
            order = json.loads(message.value() or b"")
            fate = {1: self._again, 2: self._too_early, 3: self._both, 4: self._counts_again}
            fate.get(order["order"], self._bill)(message)
        assert self._producer.flush(30) == 0

    def _send(self, topic: Topic, message: Message, **more: Any) -> None:
        self._producer.produce(topic.name, message.value(), message.key(), **more)
        assert self._producer.flush(30) == 0

    def _bill(self, message: Message) -> None:
        order = json.loads(message.value() or b"")
        self._producer.produce(self._bills.name, json.dumps(bill_of(order)), key=message.key())

    def _retry(self, message: Message, attempts: int = 1) -> None:
        due_ms = now_ms() + 100
        self._send(self.delay, message, headers=headers(attempts, due_ms))
        until(lambda: now_ms() >= due_ms, "the retry is due")
        self._send(self.due, message, headers=headers(attempts, due_ms))

    def _again(self, message: Message) -> None:
        """Bill the order in its third attempt."""
        self._retry(message)
        self._retry(message, 2)
        self._bill(message)

    def _too_early(self, message: Message) -> None:
        if 2 in self._wrong:
            due_ms = now_ms() + 60_000
            self._send(self.delay, message, headers=headers(1, due_ms))
            # the producer's clock is half an hour ahead, which hides nothing
            self._send(self.due, message, headers=headers(1, due_ms), timestamp=due_ms + 1_800_000)
        self._bill(message)

    def _both(self, message: Message) -> None:
        reason = "" if 3 in self._wrong else "no such customer"
        self._send(self.dead, message, headers=headers(1, now_ms(), reason))
        if 3 in self._wrong:
            self._bill(message)

    def _counts_again(self, message: Message) -> None:
        """Count in memory, which a restart of the worker in between loses."""
        self._retry(message)
        self._producer = self._new_producer()
        self._retry(message, 1 if 4 in self._wrong else 2)
        self._bill(message)


@pytest.mark.parametrize("wrong", [(), (2, 3, 4)], ids=["correct", "wrong"])
def test_retries_and_dead_letters_are_judged_on_brokers(
    harrow: Harrow, orders: Topic, bills: Topic, wrong: tuple[int, ...]
) -> None:
    place_orders(harrow, orders, 12)
    queue = RetryQueue(harrow, orders, bills, wrong)
    Job(harrow, orders, queue.write).run(12)
    promise = partial(
        harrow.verify_pipeline,
        orders,
        bills,
        guarantee="exactly-once",
        record_id="order",
        relation=mapped(bill_of),
        retry_topics=(queue.delay, queue.due),
        dead_letters=queue.dead,
        attempts=3,
    )
    if not wrong:
        verdict = promise()
        assert verdict.operation_counts["pipeline_retries"] == 8
        assert verdict.operation_counts["pipeline_dead_letters"] == 1
        return
    with expected_anomalies(
        "attempt-before-due", "output-and-dead-letter", "dead-letter-without-reason", "too-many-attempts"
    ) as caught:
        promise()
    text = explanations(caught[0])
    assert "the next attempt for order 2 was due at" in text
    assert "the attempts of order 4 are counted from the beginning again" in text
