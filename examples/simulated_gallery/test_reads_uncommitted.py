"""The shop aborts a transaction that takes too long, and places its orders again: only committed ones may be billed."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import Order, bill_of, encoded, new_consumer, new_orders, new_producer, order_of

PATIENCE_S = 0.3


async def bill(servers: str, isolation_level: str) -> None:
    """Bill each order in a transaction that has its offset."""
    consumer = new_consumer("orders", servers=servers, group="billing", isolation_level=isolation_level)
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        async for record in consumer:
            async with producer.transaction():
                await producer.send("bills", **encoded(bill_of(order_of(record))))
                place = TopicPartition(record.topic, record.partition)
                await producer.send_offsets_to_transaction({place: record.offset + 1}, "billing")


async def wrong(servers: str) -> None:
    await bill(servers, "read_uncommitted")


async def right(servers: str) -> None:
    await bill(servers, "read_committed")


async def place_in_transactions(servers: str, orders: list[Order]) -> None:
    """Place each three orders in a transaction; one that takes too long is aborted, and the next one has its orders."""
    async with new_producer(servers, transactional_id="shop") as producer:
        for first in range(0, len(orders), 3):
            done = False
            while not done:
                try:
                    async with producer.transaction(), asyncio.timeout(PATIENCE_S):
                        for order in orders[first : first + 3]:
                            await producer.send_and_wait("orders", **encoded(order))
                except TimeoutError:
                    continue
                done = True


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="unexpected-output, duplicate-output")
async def test_every_order_has_one_bill(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=2), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(pause(leader(orders), seconds=(0.2, 1.5))):
        await place_in_transactions(harrow.bootstrap_servers, new_orders(0, harrow.up_to(18, "orders")))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order")
