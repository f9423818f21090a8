"""Pipelines with retry topics, and with a source that was created again (L5, L6).

All tests share a cluster of one broker; each has topics of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from harrow import Harrow, Topic, VerdictError, mapped
from pipeline_jobs import LIMIT_S, ORDERS, Job, bill_of, expected_anomalies, place_orders, to_topic
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


def retrying(
    harrow: Harrow, bills: Topic, retries: Topic, *, gives_up: bool
) -> Callable[[list[Message]], None]:
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
    promise = partial(
        harrow.verify_pipeline, orders, bills, record_id="order", relation=mapped(bill_of)
    )
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
    until(
        lambda: orders.name not in admin.list_topics(timeout=LIMIT_S).topics, "the topic is deleted"
    )
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
