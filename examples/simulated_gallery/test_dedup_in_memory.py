"""Orders that were billed are remembered in memory: after a restart the last one is billed again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, kill_program
from pairs import Service, pair
from simulated_shop import Consumer, bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


async def bill(consumer: Any, producer: Any, billed: set[int]) -> None:
    """Bill each order that has no bill, each in a transaction of its own, and commit its offset after that."""
    async for record in consumer:
        order = order_of(record)
        if order["order"] not in billed:
            async with producer.transaction():
                await producer.send("bills", **encoded(bill_of(order)))
            billed.add(order["order"])
        await consumer.commit()


async def orders_with_bills(servers: str) -> set[int]:
    """Return the orders whose bills earlier starts wrote."""
    billed: set[int] = set()
    output = TopicPartition("bills", 0)
    async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader:
        reader.assign([output])
        await reader.seek_to_beginning()
        end = (await reader.end_offsets([output]))[output]
        while await reader.position(output) < end:
            for record in (await reader.getmany(timeout_ms=50)).get(output, []):
                billed.add(json.loads(record.value)["order"])
    return billed


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        await bill(consumer, producer, set())


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        await bill(consumer, producer, await orders_with_bills(servers))


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="duplicate-output")
async def test_every_order_has_one_bill(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    await harrow.aio.await_assigned("billing")
    async with harrow.chaos(kill_program("billing")):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(30, "orders")), pause_s=0.002)
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order")
