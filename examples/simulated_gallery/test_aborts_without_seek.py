"""A job that goes on after an aborted transaction has lost its orders, unless it seeks back to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from harrow import Harrow, leader, pause
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders

PATIENCE_S = 0.4


async def bill(producer: Any, batches: dict[Any, list[Any]]) -> None:
    """Bill a batch and commit it, in one transaction, which is aborted when it takes too long."""
    async with producer.transaction(), asyncio.timeout(PATIENCE_S):
        for place, batch in batches.items():
            for record in batch:
                await (await producer.send("bills", **encoded(bill_of(order_of(record)))))
            await producer.send_offsets_to_transaction({place: batch[-1].offset + 1}, "billing")


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        while True:
            if batches := await consumer.getmany(timeout_ms=1_000):
                try:
                    await bill(producer, batches)
                except (TimeoutError, KafkaError):
                    continue


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        while True:
            if batches := await consumer.getmany(timeout_ms=1_000):
                try:
                    await bill(producer, batches)
                except (TimeoutError, KafkaError):
                    for place, batch in batches.items():  # seek_to_committed() does nothing before the first commit
                        consumer.seek(place, batch[0].offset)


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output")
async def test_every_order_has_one_bill(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    async with harrow.chaos(pause(leader(bills), seconds=(0.2, 2))):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(20, "orders")))
    await place_orders(harrow.bootstrap_servers, new_orders(20, 22))
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order")
