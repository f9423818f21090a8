"""`gather(…, return_exceptions=True)` over a batch, and then a commit of all of it: the failed ones are lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import Producer, bill_of, encoded, new_consumer, new_orders, order_of, place_orders


def impatient_producer(servers: str) -> Any:
    """Return a producer whose delivery may take 300 ms."""
    return Producer(bootstrap_servers=servers, acks="all", request_timeout_ms=300)


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer:

        async def bill(record: Any) -> None:
            await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))

        while True:
            batch = [record for some in (await consumer.getmany(timeout_ms=500)).values() for record in some]
            await asyncio.gather(*map(bill, batch), return_exceptions=True)
            if batch:
                await consumer.commit()


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, impatient_producer(servers) as producer:

        async def bill(record: Any) -> None:
            await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))

        while True:
            left: list[Any] = [record for some in (await consumer.getmany(timeout_ms=500)).values() for record in some]
            commits = bool(left)
            while left:
                results = await asyncio.gather(*map(bill, left), return_exceptions=True)
                left = [record for record, result in zip(left, results, strict=True) if result is not None]
            if commits:
                with contextlib.suppress(CommitFailedError):  # it was out of its group: the orders are billed again
                    await consumer.commit()


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=2), harrow.topic("bills", partitions=2)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(pause(leader(bills), seconds=(0.2, 2))):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(20, "orders")))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
