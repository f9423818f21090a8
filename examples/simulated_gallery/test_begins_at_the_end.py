"""A group without committed offset begins at the end: a crash before the first commit of a partition loses orders."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, kill_program
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


async def bill(servers: str, where_to_begin: str) -> None:
    """Bill each order, and commit its offset after that."""
    consumer = new_consumer("orders", servers=servers, group="billing", auto_offset_reset=where_to_begin)
    async with consumer, new_producer(servers) as producer:
        async for record in consumer:
            await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))
            await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})


async def wrong(servers: str) -> None:
    await bill(servers, "latest")


async def right(servers: str) -> None:
    await bill(servers, "earliest")


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output, WaitTimeoutError")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=6), harrow.topic("bills", partitions=1)
    placed = [{**order, "customer": f"customer-{order['order']}"} for order in new_orders(0, 30)]
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    await harrow.aio.await_assigned("billing")
    async with harrow.chaos(kill_program("billing")):
        await place_orders(harrow.bootstrap_servers, placed[:18])
    await harrow.aio.await_assigned("billing", members=1)
    await place_orders(harrow.bootstrap_servers, placed[18:])
    await harrow.aio.await_caught_up("billing", orders, timeout=10)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
