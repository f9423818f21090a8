"""A bill whose delivery failed three times is given up, and its order is committed: nobody bills it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError, KafkaError
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import Producer, bill_of, encoded, new_consumer, new_orders, order_of, place_orders

ATTEMPTS = 3


def impatient_producer(servers: str) -> Any:
    """Return a producer whose delivery may take 200 ms."""
    return Producer(bootstrap_servers=servers, acks="all", request_timeout_ms=200)


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer:
        async for record in consumer:
            for _ in range(ATTEMPTS):
                try:
                    await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))
                except KafkaError:
                    await asyncio.sleep(0.1)
                else:
                    break
            with contextlib.suppress(CommitFailedError):  # it was out of its group: the order is billed again
                await consumer.commit()


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer:
        async for record in consumer:
            while True:
                try:
                    await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))
                except KafkaError:
                    await asyncio.sleep(0.1)
                else:
                    break
            with contextlib.suppress(CommitFailedError):  # it was out of its group: the order is billed again
                await consumer.commit()


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(pause(leader(bills), seconds=(0.2, 3))):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(20, "orders")))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
