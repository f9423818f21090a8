"""A record that the brokers lose is shown by every recorder: with acks=1, while its leader is isolated (J6, L5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from harrow import Harrow, isolate, leader
from recorded_sends import judged

DEADLINE_S = 60
Send = Callable[[Harrow, Callable[[], bool]], None]


def with_confluent(harrow: Harrow, running: Callable[[], bool]) -> None:
    producer = harrow.producer(acks=1, client_id="shop")
    count = 0
    while running():
        producer.produce("orders", f"order {count}")
        producer.poll(0.01)
        count += 1
    assert producer.flush(DEADLINE_S) == 0


def with_kafka_python(harrow: Harrow, running: Callable[[], bool]) -> None:
    producer: Any = harrow.kafka_python.producer(acks=1, client_id="shop", request_timeout_ms=2_000)
    count = 0
    while running():
        producer.send("orders", b"order %d" % count).get(DEADLINE_S)
        count += 1
    producer.flush(DEADLINE_S)


def with_aiokafka(harrow: Harrow, running: Callable[[], bool]) -> None:
    async def application() -> None:
        async with harrow.aiokafka.producer(acks=1, client_id="shop") as producer:
            count = 0
            while running():
                await producer.send_and_wait("orders", b"order %d" % count)
                count += 1

    asyncio.run(application())


@pytest.mark.harrow(config={"zookeeper.session.timeout.ms": 500})
@pytest.mark.parametrize("send", [with_confluent, with_kafka_python, with_aiokafka])
def test_an_acknowledged_record_that_is_lost_is_shown_with_its_value(harrow: Harrow, send: Send) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(isolate(leader(orders, 0), seconds=1.2, heals_by="reset")) as chaos:
        send(harrow, lambda: chaos.running)
    verdict = judged(harrow, orders, "no-loss")
    assert verdict.status.value == "invalid", verdict
    lost = [found for found in verdict.anomalies if found.name == "lost-write"]
    sends = [row for found in lost for row in found.operations if row["operation"] == "send"]
    assert sends
    assert all(row["value"].startswith("order ") for row in sends), sends
    assert all(str(row["client"]).startswith("shop@") for row in sends), sends
