"""The worker bills every order, whatever happens to its brokers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from billing_worker import bill_of, work
from harrow import Harrow, Topic, group_coordinator, kill, leader, mapped, pause

DEADLINE_S = 60


async def place_orders(harrow: Harrow, running: Callable[[], bool]) -> list[int]:
    """Place orders while `running()`; return the numbers of those that Kafka acknowledged."""
    placed: list[int] = []
    async with harrow.aiokafka.producer(client_id="shop") as shop:
        for number in itertools.count():
            if number >= 20 and not running():
                return placed
            order = json.dumps({"order": number, "amount": 10 + number}).encode()
            await shop.send_and_wait("orders", order, key=b"customer %d" % (number % 5))
            placed.append(number)
            await asyncio.sleep(0.01)
    return placed


@contextlib.asynccontextmanager
async def worker(harrow: Harrow) -> AsyncGenerator[None, None]:
    """Run the worker during the block."""
    stop = asyncio.Event()
    task = asyncio.create_task(work(harrow.bootstrap_servers, stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def until_all_are_billed(harrow: Harrow, orders: Topic) -> None:
    """Wait until the worker has committed the last order."""
    async with asyncio.timeout(DEADLINE_S):
        while not await all_are_billed(harrow, orders):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def all_are_billed(harrow: Harrow, orders: Topic) -> bool:
    """Ask with a new consumer: one whose coordinator has moved finds no offset any more.

    aiokafka 0.14 does not read the error of the whole group, NOT_COORDINATOR, that OffsetFetch has from version 2 on.
    """
    places = [TopicPartition(orders.name, number) for number in range(orders.partitions)]
    group: Any = AIOKafkaConsumer(bootstrap_servers=harrow.bootstrap_servers, group_id="billing")
    async with group:
        ends = await group.end_offsets(places)
        return {place: await group.committed(place) for place in places} == ends


def test_every_order_is_billed_although_brokers_fail(harrow: Harrow) -> None:
    orders, bills = harrow.topic("orders", partitions=2), harrow.topic("bills", partitions=2)

    async def scenario() -> list[int]:
        async with worker(harrow):
            async with harrow.chaos(kill(leader(bills)), pause(group_coordinator("billing"), seconds=0.5)) as chaos:
                placed = await place_orders(harrow, lambda: chaos.running)
            await until_all_are_billed(harrow, orders)
        return placed

    placed = asyncio.run(scenario())
    harrow.verify(orders, guarantee="exactly-once, ordered", record_id="order", expected=placed)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
