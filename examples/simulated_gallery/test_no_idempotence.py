"""An order that is sent again after a lost response is in the topic twice, unless the producer is idempotent."""

from __future__ import annotations

import pytest
from harrow import Harrow, kill, leader
from pairs import Service, pair
from simulated_shop import Order, Producer, encoded, new_orders


async def wrong(servers: str, orders: list[Order]) -> list[Order]:
    placed: list[Order] = []
    async with Producer(bootstrap_servers=servers, acks="all") as producer:
        for order in orders:
            await producer.send_and_wait("orders", **encoded(order))
            placed.append(order)
    return placed


async def right(servers: str, orders: list[Order]) -> list[Order]:
    placed: list[Order] = []
    async with Producer(bootstrap_servers=servers, acks="all", enable_idempotence=True) as producer:
        for order in orders:
            await producer.send_and_wait("orders", **encoded(order))
            placed.append(order)
    return placed


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="duplicate")
async def test_no_order_is_placed_twice(harrow: Harrow, service: Service) -> None:
    orders = harrow.topic("orders", partitions=1)
    async with harrow.chaos(kill(leader(orders))):
        placed = await service(harrow.bootstrap_servers, new_orders(0, harrow.up_to(80, "orders")))
    harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)
