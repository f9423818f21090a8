"""Sums in memory: a service that was started again begins at zero, unless it reads what it has published."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, folded, kill_program
from pairs import Service, pair
from simulated_shop import Consumer, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


async def sum_up(consumer: Any, producer: Any, totals: Counter[str]) -> None:
    """Publish a customer's new turnover after each order, with the order's offset in the same transaction."""
    async for record in consumer:
        order = order_of(record)
        customer = order["customer"]
        totals[customer] += order["amount"]
        async with producer.transaction():
            await producer.send("totals", **encoded({"customer": customer, "total": totals[customer]}))
            place = TopicPartition(record.topic, record.partition)
            await producer.send_offsets_to_transaction({place: record.offset + 1}, "turnover")


async def published(servers: str) -> Counter[str]:
    """Return the sums that earlier starts published."""
    totals: Counter[str] = Counter()
    output = TopicPartition("totals", 0)
    async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader:
        reader.assign([output])
        await reader.seek_to_beginning()
        end = (await reader.end_offsets([output]))[output]
        while await reader.position(output) < end:
            for record in (await reader.getmany(timeout_ms=50)).get(output, []):
                total = json.loads(record.value)
                totals[total["customer"]] = total["total"]
    return totals


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="turnover", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="turnover") as producer, consumer:
        await sum_up(consumer, producer, Counter())


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="turnover", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="turnover") as producer, consumer:
        await sum_up(consumer, producer, await published(servers))


def add(total: Any, order: Any) -> dict[str, Any]:
    return {"customer": order["customer"], "total": total["total"] + order["amount"]}


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="wrong-output")
async def test_the_last_totals_are_right(harrow: Harrow, service: Service) -> None:
    orders, totals = harrow.topic("orders", partitions=1), harrow.topic("totals", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="turnover")
    async with harrow.chaos(kill_program("turnover")):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(20, "orders")))
    await harrow.aio.await_caught_up("turnover", orders)
    turnover = folded(add, {"total": 0}, key="customer")
    harrow.verify_pipeline(orders, totals, guarantee="exactly-once", record_id="customer", relation=turnover)
