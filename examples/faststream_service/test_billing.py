"""A service on FastStream under a broker that hangs, over many seeds in a simulation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from harrow import Harrow, leader, pause

pytest.importorskip("faststream", reason="FastStream is not installed: pip install 'faststream[kafka]'")

from faststream_billing import acknowledges_errors, by_default, tries_again

Producer: Any = AIOKafkaProducer
Main = Callable[[str], Coroutine[Any, Any, None]]


async def place_orders(servers: str) -> None:
    """Place orders correctly: the service under test consumes them."""
    async with Producer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(20):
            order = {"order": number, "amount": 10 + number}
            await producer.send_and_wait("orders", json.dumps(order).encode())
            await asyncio.sleep(0.05)


@pytest.mark.harrow(backend="simulated", seeds=50)
@pytest.mark.parametrize(
    "main",
    [
        pytest.param(by_default, marks=pytest.mark.loses),
        pytest.param(acknowledges_errors, marks=pytest.mark.loses),
        tries_again,
    ],
    ids=lambda main: main.__name__,
)
async def test_every_order_is_billed(harrow: Harrow, main: Main) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(main, harrow.bootstrap_servers, name="billing")
    await harrow.aio.await_assigned("billing")
    async with harrow.chaos(pause(leader(bills), seconds=(0.2, 3))):
        await place_orders(harrow.bootstrap_servers)
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
