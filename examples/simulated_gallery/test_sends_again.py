"""`asyncio.wait_for` ends the wait, not the delivery: who sends again then has placed the order twice."""

from __future__ import annotations

import asyncio

import pytest
from harrow import Harrow, kill, leader
from pairs import Service, pair
from simulated_shop import PAUSE_S, Order, encoded, new_orders, new_producer

PATIENCE_S = 0.3


async def wrong(servers: str, orders: list[Order]) -> list[Order]:
    async with new_producer(servers) as producer:
        for order in orders:
            while True:
                try:
                    await asyncio.wait_for(producer.send_and_wait("orders", **encoded(order)), PATIENCE_S)
                except TimeoutError:
                    continue
                break
            await asyncio.sleep(PAUSE_S)
    return orders


async def right(servers: str, orders: list[Order]) -> list[Order]:
    async with new_producer(servers) as producer:
        for order in orders:
            delivery = await producer.send("orders", **encoded(order))
            while not delivery.done():
                await asyncio.wait([delivery], timeout=PATIENCE_S)
            await delivery
            await asyncio.sleep(PAUSE_S)
    return orders


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="duplicate")
async def test_no_order_is_placed_twice(harrow: Harrow, service: Service) -> None:
    orders = harrow.topic("orders", partitions=1)
    async with harrow.chaos(kill(leader(orders))):
        placed = await service(harrow.bootstrap_servers, new_orders(0, harrow.up_to(30, "orders")))
    harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)
