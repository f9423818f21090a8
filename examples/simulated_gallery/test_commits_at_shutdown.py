"""SIGTERM in the middle of a batch: a commit of the consumer's position also commits the orders that are left."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
from harrow import Harrow, terminate_program
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


def await_sigterm() -> asyncio.Event:
    """Return an event that SIGTERM sets."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


async def bill_batch(consumer: Any, producer: Any, stop: asyncio.Event) -> bool:
    """Bill the next orders, each takes a few milliseconds, until `stop`; return whether all of them have a bill."""
    for some in (await consumer.getmany(timeout_ms=50)).values():
        for record in some:
            if stop.is_set():
                return False
            await asyncio.sleep(0.005)
            await producer.send_and_wait("bills", **encoded(bill_of(order_of(record))))
    return True


async def wrong(servers: str) -> None:
    stop = await_sigterm()
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, new_producer(servers) as producer:
        while not stop.is_set():
            await bill_batch(consumer, producer, stop)
            await consumer.commit()


async def right(servers: str) -> None:
    stop = await_sigterm()
    consumer = new_consumer("orders", servers=servers, group="billing")
    async with consumer, new_producer(servers) as producer:
        while not stop.is_set():
            if await bill_batch(consumer, producer, stop):
                await consumer.commit()


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output, commit-before-output")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    await harrow.aio.await_assigned("billing")
    async with harrow.chaos(terminate_program("billing")):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(40, "orders")), pause_s=0.005)
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
