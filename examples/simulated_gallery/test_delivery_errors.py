"""An order whose delivery failed is not placed: a service that does not look at the result forgets it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import PAUSE_S, Order, Producer, encoded, new_orders

PATIENCE_MS = 600


async def wrong(servers: str, orders: list[Order]) -> list[Order]:
    sent: list[Any] = []
    async with Producer(bootstrap_servers=servers, acks="all", request_timeout_ms=PATIENCE_MS) as producer:
        for order in orders:
            sent.append(await producer.send("orders", **encoded(order)))
            await asyncio.sleep(PAUSE_S)
        await asyncio.wait(sent)
    return orders


async def right(servers: str, orders: list[Order]) -> list[Order]:
    sent: list[Any] = []
    async with Producer(bootstrap_servers=servers, acks="all", request_timeout_ms=PATIENCE_MS) as producer:
        for order in orders:
            sent.append(await producer.send("orders", **encoded(order)))
            await asyncio.sleep(PAUSE_S)
        results = await asyncio.gather(*sent, return_exceptions=True)
    return [order for order, result in zip(orders, results, strict=True) if not isinstance(result, KafkaError)]


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing")
async def test_every_order_that_counts_as_placed_is_there(harrow: Harrow, service: Service) -> None:
    orders = harrow.topic("orders", partitions=1)
    async with harrow.chaos(pause(leader(orders), seconds=(0.2, 2))):
        placed = await service(harrow.bootstrap_servers, new_orders(0, harrow.up_to(30, "orders")))
    harrow.verify(orders, guarantee="no-loss", record_id="order", expected=placed)
