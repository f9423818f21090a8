"""What faults of clients find: a wrong application is invalid under the fault, its correct twin valid (K8, L5).

Each application is a program that bills orders. All tests share a cluster; each has topics and a group of its own.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from harrow import (
    Harrow,
    Record,
    Topic,
    Verdict,
    VerdictError,
    hijack_transactional_id,
    kill_program,
    mapped,
    pause_program,
    rebalance_storm,
)
from harrow.faults import Fault
from long_runs import long_run
from waiting import until

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 5}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS, brokers=3)

HEAD = """
import json, sys
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

servers, orders, bills, kind = sys.argv[1:]
GROUP = {"bootstrap.servers": servers, "group.id": orders, "client.id": "billing", "auto.offset.reset": "earliest",
         "enable.auto.commit": False, "session.timeout.ms": 2000, "heartbeat.interval.ms": 200}

def bill_of(message):
    order = json.loads(message.value())
    return json.dumps({"order": order["order"], "total": order["amount"] * 3})

def polled(consumer):
    while True:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            yield message
"""
PLAIN = """
consumer = Consumer(GROUP)
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
consumer.subscribe([orders])
for message in polled(consumer):
    if kind == "commits-first":
        consumer.commit(message, asynchronous=False)
    producer.produce(bills, bill_of(message))
    producer.flush()
    if kind != "commits-first":
        consumer.commit(message, asynchronous=False)
"""
TRANSACTIONAL = """
consumer = Consumer(GROUP)
consumer.subscribe([orders])

def new_producer():
    producer = Producer({"bootstrap.servers": servers, "transactional.id": orders, "linger.ms": 0,
                         "retry.backoff.ms": 20})
    producer.init_transactions(30)
    return producer

producer = new_producer()
for message in polled(consumer):
    try:
        producer.begin_transaction()
        producer.produce(bills, bill_of(message))
        place = TopicPartition(orders, message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 10)
        producer.commit_transaction(10)
    except KafkaException as error:
        fenced = error.args[0].fatal()
        if kind == "ignores-the-fence":
            if fenced:  # "transient": the next order may go through
                producer = new_producer()
        else:
            if fenced:
                producer = new_producer()
            else:
                producer.abort_transaction(10)
            try:
                consumer.seek(TopicPartition(orders, message.partition(), message.offset()))
            except KafkaException:
                pass  # it does not have the partition any more, or not yet
"""
BATCHES = """
consumer, batch = Consumer(GROUP), []
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})

def revoked(consumer, places):
    if kind == "commits-what-it-read" and batch:
        consumer.commit(asynchronous=False)  # positions: the orders of the batch have no bills yet
    batch.clear()

consumer.subscribe([orders], on_revoke=revoked, on_lost=lambda *_: batch.clear())
while True:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        batch.append(message)
    if len(batch) == 50 or (batch and message is None):  # about half a second of orders
        for read in batch:
            producer.produce(bills, bill_of(read))
        producer.flush()
        batch.clear()
        try:
            consumer.commit(asynchronous=False)
        except KafkaException:
            pass  # another member has the partitions: it bills these orders again
"""


def bill_of(order: dict[str, Any] | Record) -> dict[str, Any]:
    return {"order": order["order"], "total": order["amount"] * 3}


@contextmanager
def orders_placed(harrow: Harrow, topic: Topic) -> Generator[None]:
    """Place orders until the block ends."""
    stop = threading.Event()

    def place() -> None:
        producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
        number = 0
        while not stop.wait(0.01):
            producer.produce(topic.name, json.dumps({"order": number, "amount": number % 9}))
            producer.poll(0)
            number += 1
        producer.flush(30)

    thread = threading.Thread(target=place)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def judged(
    harrow: Harrow, tmp_path: Path, source: str, kind: str, fault: Fault, guarantee: str, *, times: int = 1
) -> set[str]:
    """Run the application under the fault, `times` in turn, until it has billed everything; the verdict's anomalies."""
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    (tmp_path / "billing.py").write_text(HEAD + source)
    command = [sys.executable, str(tmp_path / "billing.py"), "{bootstrap}", orders.name, bills.name, kind]
    program = harrow.program("billing", command)
    faults = [_named(fault, orders)] * times
    with orders_placed(harrow, orders), harrow.chaos(*faults) as chaos:
        until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
    harrow.await_caught_up(orders.name, orders)
    program.stop(grace_s=5)
    verdict = verdict_of(harrow, orders, bills, guarantee)
    assert verdict.status.value == ("invalid" if verdict.anomalies else "valid"), verdict
    return verdict.anomaly_names()


def verdict_of(harrow: Harrow, orders: Topic, bills: Topic, guarantee: str) -> Verdict:
    try:
        return harrow.verify_pipeline(orders, bills, guarantee=guarantee, record_id="order", relation=mapped(bill_of))
    except VerdictError as error:
        return error.verdict


def _named(fault: Fault, orders: Topic) -> Fault:
    """The fault for the group, or the transactional id, that has the topic's name."""
    if fault.kind == "hijack_transactional_id":
        return hijack_transactional_id(orders.name)
    if fault.kind == "rebalance_storm":
        return rebalance_storm(orders.name, seconds=fault.seconds)
    return fault


@pytest.mark.parametrize(("kind", "found"), [("commits-first", "missing-output"), ("commits-last", "")])
def test_a_crash_between_the_commit_and_the_bill(harrow: Harrow, tmp_path: Path, kind: str, found: str) -> None:
    fault = kill_program("billing", after="OffsetCommit", nth=9, client="billing", seconds=0.1)
    anomalies = judged(harrow, tmp_path, PLAIN, kind, fault, "at-least-once")
    assert (found in anomalies) if found else not anomalies


@pytest.mark.parametrize("source", ["plain", pytest.param("transactional", marks=long_run)])
def test_a_crash_between_the_bill_and_the_commit(harrow: Harrow, tmp_path: Path, source: str) -> None:
    code, api = (PLAIN, "OffsetCommit") if source == "plain" else (TRANSACTIONAL, "EndTxn")
    fault = kill_program("billing", before=api, nth=9, client="*", seconds=0.1)
    anomalies = judged(harrow, tmp_path, code, "commits-last", fault, "exactly-once")
    assert anomalies == ({"duplicate-output"} if source == "plain" else set())


@pytest.mark.parametrize(("kind", "found"), [("ignores-the-fence", "missing-output"), ("right", "")])
def test_a_transactional_job_is_fenced(harrow: Harrow, tmp_path: Path, kind: str, found: str) -> None:
    fault = hijack_transactional_id("its topic's name")
    anomalies = judged(harrow, tmp_path, TRANSACTIONAL, kind, fault, "exactly-once")
    assert (found in anomalies) if found else not anomalies


@pytest.mark.parametrize(
    ("kind", "found"), [("commits-what-it-read", "missing-output"), pytest.param("right", "", marks=long_run)]
)
def test_a_worker_of_batches_in_a_rebalance_storm(harrow: Harrow, tmp_path: Path, kind: str, found: str) -> None:
    """A revocation that arrives between two batches does no harm, so there are three storms."""
    fault = rebalance_storm("its topic's name", seconds=1)
    anomalies = judged(harrow, tmp_path, BATCHES, kind, fault, "at-least-once", times=3)
    assert (found in anomalies) if found else not anomalies


@long_run
def test_a_job_that_was_paused_longer_than_its_session_loses_nothing(harrow: Harrow, tmp_path: Path) -> None:
    fault = pause_program("billing", seconds=3)
    assert not judged(harrow, tmp_path, TRANSACTIONAL, "right", fault, "exactly-once")
