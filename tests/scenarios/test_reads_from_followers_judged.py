"""A record at an offset is the same from every replica; a follower that returns another one is found (L2, KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest
from brokers_by_hand import place
from confluent_kafka import Consumer
from harrow import Harrow
from harrow.harness.checks import Verdict
from harrow.harness.errors import VerdictError
from waiting import until

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CONFIG: dict[str, object] = {"replica.selector.class": SELECTOR}
RECORDS = 20


@pytest.mark.parametrize(
    "is_planted",
    [
        pytest.param(is_planted, marks=pytest.mark.harrow(brokers=2, config=CONFIG, plant=plants), id=label)
        for label, plants, is_planted in (
            ("planted_follower_reads", ("planted_racks", "planted_follower_reads"), True),
            ("unplanted", ("planted_racks",), False),
        )
    ],
)
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "any client"])
def test_consumers_in_racks_read_what_the_leader_has(harrow: Harrow, is_planted: bool, recorded: bool) -> None:
    orders = place(harrow.cluster, "orders", 1, 2)
    producer = harrow.producer()
    for number in range(RECORDS):
        producer.produce(orders.topic, f"order {number}", key="k")
    producer.flush(30)
    orders.await_ends(hw={1: RECORDS})
    until(lambda: orders.seen(2).hw == RECORDS, "the follower's high watermark", timeout_s=30)
    settings = {"client.rack": "rack-2", "group.id": "near", "auto.offset.reset": "earliest"}
    if recorded:
        consumer: Any = harrow.consumer(**settings)
    else:
        consumer = Consumer({"bootstrap.servers": harrow.bootstrap_servers, **settings})
    values = read_all(consumer, orders.topic)
    assert (values == {"stale"}) is is_planted, values
    verdict = judge(harrow)
    if not is_planted:
        assert verdict.valid, verdict
        return
    assert "inconsistent-offsets" in verdict.anomaly_names(), verdict
    if recorded:  # what a recording consumer read is shown first
        read = [row for row in verdict.anomalies[0].operations if row["operation"] == "read"]
        assert read, verdict
    else:
        assert "delivered by broker 2" in str(verdict), verdict


def read_all(consumer: Any, topic: str) -> set[str]:
    """Read every record."""
    consumer.subscribe([topic])
    values: list[str] = []

    def read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
        return len(values) >= RECORDS

    until(read, f"{RECORDS} records", timeout_s=60)
    consumer.close()
    return set(values)


def judge(harrow: Harrow) -> Verdict:
    try:
        return harrow.verify("orders", guarantee="no-loss")
    except VerdictError as error:
        return error.verdict
