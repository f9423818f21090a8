"""With acks=1 an order counts as placed before a follower has it: a leader that dies at that moment loses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from harrow import Harrow, kill, leader
from pairs import Service, pair
from simulated_shop import Order, Producer, encoded, new_orders


async def take(servers: str, orders: list[Order], acks: Any) -> list[Order]:
    """Take orders in bursts of five; return those that Kafka acknowledged."""
    placed: list[Order] = []
    async with Producer(bootstrap_servers=servers, acks=acks) as producer:

        async def place(order: Order) -> None:
            await producer.send_and_wait("orders", **encoded(order))
            placed.append(order)

        for first in range(0, len(orders), 5):
            await asyncio.gather(*map(place, orders[first : first + 5]))
    return placed


async def wrong(servers: str, orders: list[Order]) -> list[Order]:
    return await take(servers, orders, 1)


async def right(servers: str, orders: list[Order]) -> list[Order]:
    return await take(servers, orders, "all")


@pytest.mark.harrow(backend="simulated", seeds=400)
@pair(wrong, right, finds="missing, lost-write")
async def test_no_placed_order_is_lost(harrow: Harrow, service: Service) -> None:
    orders = harrow.topic("orders", partitions=1)
    async with harrow.chaos(kill(leader(orders))):
        placed = await service(harrow.bootstrap_servers, new_orders(0, harrow.up_to(200, "orders")))
    harrow.verify(orders, guarantee="no-loss", record_id="order", expected=placed)
