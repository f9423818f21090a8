"""A task that died without anybody who awaits it: the service runs, and bills nothing any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import Producer, bill_of, encoded, new_consumer, new_orders, order_of, place_orders


async def read_on(consumer: Any, queue: asyncio.Queue[Any]) -> None:
    """Put the orders into the queue."""
    async for record in consumer:
        await queue.put(record)


async def bill(consumer: Any, producer: Any, queue: asyncio.Queue[Any]) -> None:
    """Bill the orders of the queue; a delivery may fail."""
    while True:
        record = await queue.get()
        await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))
        await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})


def impatient_producer(servers: str) -> Any:
    """Return a producer whose delivery may take 300 ms."""
    return Producer(bootstrap_servers=servers, acks="all", request_timeout_ms=300)


async def wrong(servers: str) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue(10)
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer:
        worker = asyncio.create_task(bill(consumer, producer, queue))
        await read_on(consumer, queue)
        await worker


async def right(servers: str) -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue(10)
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer, asyncio.TaskGroup() as tasks:
        tasks.create_task(bill(consumer, producer, queue))
        await read_on(consumer, queue)


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="WaitTimeoutError")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing", restart="on-failure")
    async with harrow.chaos(pause(leader(bills), seconds=(0.2, 2))):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(20, "orders")))
    await harrow.aio.await_caught_up("billing", orders, timeout=20)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
