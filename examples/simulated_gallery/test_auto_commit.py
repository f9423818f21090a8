"""Auto-commit while the bills are still on their way: a delivery that lasts longer is committed before it is there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harrow import Harrow, kill, leader
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


async def wrong(servers: str) -> None:
    auto: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
    consumer = new_consumer("orders", servers=servers, group="billing", **auto)
    async with consumer, new_producer(servers) as producer:
        async for record in consumer:
            await producer.send("bills", **encoded(bill_of(order_of(record))))


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, new_producer(servers) as producer:
        while True:
            batches = await consumer.getmany(timeout_ms=1_000)
            records = [record for batch in batches.values() for record in batch]
            sent = [await producer.send("bills", **encoded(bill_of(order_of(record)))) for record in records]
            await asyncio.gather(*sent)
            if sent:
                await consumer.commit()


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output, commit-before-output")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(kill(leader(bills))):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(25, "orders")))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
