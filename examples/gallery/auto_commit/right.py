"""Bills orders with aiokafka. The service commits a batch itself, when Kafka has all of its bills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from threading import Event
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from shop import Bill, Order


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    asyncio.run(work(servers, make_bill, stop))


async def work(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Do the same in a coroutine."""
    consumer: Any = AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with producer, consumer:
        while not stop.is_set():
            for partition, batch in (await consumer.getmany(timeout_ms=100)).items():
                for message in batch:
                    bill = make_bill(json.loads(message.value or b""))
                    await producer.send_and_wait("bills", json.dumps(bill).encode())
                await consumer.commit({partition: batch[-1].offset + 1})
