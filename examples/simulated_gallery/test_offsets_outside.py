"""A job that commits its offset after the transaction, and not in it, writes a bill twice after a crash in between."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition
from harrow import Harrow, kill_program
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders


async def wrong(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        async for record in consumer:
            async with producer.transaction():
                await producer.send("bills", **encoded(bill_of(order_of(record))))
            await consumer.commit()


async def right(servers: str) -> None:
    consumer = new_consumer("orders", servers=servers, group="billing", isolation_level="read_committed")
    async with new_producer(servers, transactional_id="billing") as producer, consumer:
        async for record in consumer:
            async with producer.transaction():
                await producer.send("bills", **encoded(bill_of(order_of(record))))
                place = TopicPartition(record.topic, record.partition)
                await producer.send_offsets_to_transaction({place: record.offset + 1}, "billing")


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="duplicate-output")
async def test_every_order_has_one_bill(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    harrow.start(service, harrow.bootstrap_servers, name="billing")
    await harrow.aio.await_assigned("billing")
    async with harrow.chaos(kill_program("billing")):
        await place_orders(harrow.bootstrap_servers, new_orders(0, harrow.up_to(30, "orders")), pause_s=0.002)
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order")
