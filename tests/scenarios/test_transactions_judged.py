"""Verdicts on transactions: an aborted record is neither lost, nor a duplicate, nor there (F5, L1, L5, L6)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from harrow import Harrow, Verdict
from harrow.harness.errors import VerdictError
from transactional_clients import TIMEOUT_S, consumer_of, transactional_producer
from waiting import until

pytestmark = pytest.mark.harrow(scope="session")


def place(producer: Producer, topic: str, orders: range, *, commit: bool, time_ms: int) -> None:
    """One transaction with these orders; a retry of it sends the same records with the same times."""
    producer.begin_transaction()
    for order in orders:
        producer.produce(topic, json.dumps({"order": order}), key=f"customer {order % 3}", timestamp=time_ms)
    assert producer.flush(TIMEOUT_S) == 0
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        producer.abort_transaction(TIMEOUT_S)


def test_records_sent_again_after_an_abort_are_exactly_once(harrow: Harrow) -> None:
    orders = harrow.topic("retried", partitions=2)
    producer = transactional_producer(harrow.bootstrap_servers)
    producer.init_transactions(TIMEOUT_S)
    now_ms = int(time.time() * 1000)
    for first in range(0, 30, 10):
        part = range(first, first + 10)
        place(producer, orders.name, part, commit=False, time_ms=now_ms)
        place(producer, orders.name, part, commit=True, time_ms=now_ms)
    guarantee = "exactly-once, ordered"
    verdict: Any = harrow.verify(orders, guarantee=guarantee, record_id="order", expected=list(range(30)))
    assert verdict.valid, verdict
    assert not verdict.anomaly_counts


def test_an_aborted_order_that_the_application_believes_in_is_missing(harrow: Harrow) -> None:
    orders = harrow.topic("believed", partitions=1)
    producer = transactional_producer(harrow.bootstrap_servers)
    producer.init_transactions(TIMEOUT_S)
    now_ms = int(time.time() * 1000)
    place(producer, orders.name, range(5), commit=True, time_ms=now_ms)
    place(producer, orders.name, range(5, 8), commit=False, time_ms=now_ms)
    with pytest.raises(VerdictError, match="missing"):
        harrow.verify(orders, guarantee="at-least-once", record_id="order", expected=list(range(8)))


def test_a_recorded_producer_that_aborts_has_a_valid_verdict(harrow: Harrow) -> None:
    orders = harrow.topic("recorded", partitions=1)
    producer: Any = harrow.producer(transactional_id="recorded-orders")
    producer.init_transactions(TIMEOUT_S)
    now_ms = int(time.time() * 1000)
    for commit in (False, True):
        place(producer, orders.name, range(10), commit=commit, time_ms=now_ms)
    verdict: Any = harrow.verify(orders, guarantee="exactly-once")
    assert verdict.valid, verdict


def test_a_fenced_zombie_leaves_no_doubt(harrow: Harrow) -> None:
    orders = harrow.topic("zombies", partitions=1)
    servers = harrow.bootstrap_servers
    zombie = transactional_producer(servers, "zombie-orders")
    zombie.init_transactions(TIMEOUT_S)
    zombie.begin_transaction()
    zombie.produce(orders.name, json.dumps({"order": 1}))
    assert zombie.flush(TIMEOUT_S) == 0
    heir = transactional_producer(servers, "zombie-orders")
    heir.init_transactions(TIMEOUT_S)
    zombie.produce(orders.name, json.dumps({"order": 2}))
    with pytest.raises(KafkaException):
        zombie.flush(TIMEOUT_S)
    place(heir, orders.name, range(3, 5), commit=True, time_ms=int(time.time() * 1000))
    verdict: Any = harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=[3, 4])
    assert verdict.valid, verdict


@pytest.mark.parametrize("of_the_reader", [True, False])
def test_offsets_with_the_metadata_of_another_group_are_named_before_a_crash_repeats_outputs(
    harrow: Harrow, of_the_reader: bool
) -> None:
    """The records of this run are right: the job was not started again."""
    name = "own" if of_the_reader else "other"
    orders, paid = harrow.topic(f"orders-{name}"), harrow.topic(f"paid-{name}")
    servers = harrow.bootstrap_servers
    producer = transactional_producer(servers)
    producer.init_transactions(TIMEOUT_S)
    place(producer, orders.name, range(5), commit=True, time_ms=int(time.time() * 1000))
    with (
        consumer_of(servers, f"job-{name}", isolation_level="read_committed") as reader,
        consumer_of(servers, f"audit-{name}") as other,
    ):
        reader.subscribe([orders.name])
        other.subscribe([paid.name])
        read: list[Any] = reader.consume(5, TIMEOUT_S)
        until(lambda: not other.poll(0.05) and bool(other.assignment()))
        producer.begin_transaction()
        for message in read:
            producer.produce(paid.name, message.value())
        metadata = (reader if of_the_reader else other).consumer_group_metadata()
        positions = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
    if of_the_reader:
        verdict: Any = harrow.verify(orders, paid, guarantee="exactly-once")
        assert verdict.valid, verdict
        return
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, paid, guarantee="exactly-once")
    assert found.value.verdict is not None
    assert found.value.verdict.anomaly_counts == {"commit-for-other-group": 1}
    assert "for group audit-other" in str(found.value)
    assert "job-other owned the partition" in str(found.value)


def read_early(harrow: Harrow, *, commit: bool) -> Verdict:
    """The verdict on three orders that a reader of committed data received while their transaction was open."""
    orders = harrow.topic("early" if commit else "aborted", partitions=1)
    producer = transactional_producer(harrow.bootstrap_servers)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for order in range(3):
        producer.produce(orders.name, json.dumps({"order": order}))
    assert producer.flush(TIMEOUT_S) == 0
    with consumer_of(harrow.bootstrap_servers, "early", isolation_level="read_committed") as reader:
        reader.subscribe([orders.name])
        assert len(reader.consume(3, TIMEOUT_S)) == 3
    (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT_S)
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="exactly-once")
    assert found.value.verdict is not None
    return found.value.verdict


@pytest.mark.harrow(plant=("reads_open_transactions",))
@pytest.mark.parametrize(("commit", "name"), [(True, "precommitted-read"), (False, "aborted-read")])
def test_a_broker_that_does_not_respect_the_lso_is_found(harrow: Harrow, commit: bool, name: str) -> None:
    verdict = read_early(harrow, commit=commit)
    assert verdict.anomaly_counts[name] == 3, verdict
    # The broker says a last stable offset of 3 to the reader, and 0 to others until the marker is replicated.
    assert set(verdict.anomaly_counts) <= {name, "lso-regression"}, verdict
    assert '"order": ' in str(verdict), "the verdict shows the orders"
