"""A transactional job whose group coordinator dies: aiokafka 0.13.0 raises where it should look for the next one.

https://github.com/aio-libs/aiokafka/issues/1151, mended in 0.14.0. The aiokafka that is imported is judged: PYTHONPATH
chooses it (README.md).
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from harrow import Harrow, kill, leader, pause

LONG = pytest.mark.skipif(os.environ.get("HARROW_LONG") != "1", reason="HARROW_LONG=1 runs it")
Producer: Any = AIOKafkaProducer
Consumer: Any = AIOKafkaConsumer


async def billing(servers: str) -> None:
    """Write a bill for each order, with the order's offset in the same transaction."""
    consumer = Consumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = Producer(bootstrap_servers=servers, transactional_id="billing")
    async with producer, consumer:
        async for record in consumer:
            async with producer.transaction():
                await producer.send("bills", record.value)
                place = TopicPartition(record.topic, record.partition)
                await producer.send_offsets_to_transaction({place: record.offset + 1}, "billing")


async def place_orders(servers: str, numbers: range) -> None:
    """Place orders correctly."""
    async with Producer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in numbers:
            await producer.send_and_wait("orders", json.dumps({"order": number}).encode())
            await asyncio.sleep(0.02)


@LONG
@pytest.mark.harrow(backend="simulated", seeds=3)  # a search: --harrow-seeds=200
async def test_the_job_survives_a_broker(harrow: Harrow) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(billing, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(pause(leader(bills)), kill(1), kill(2), kill(3)):
        await place_orders(harrow.bootstrap_servers, range(25))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order")
