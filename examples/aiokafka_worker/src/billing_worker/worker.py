"""The worker. An order may be billed twice after a failure, but no order is forgotten.

Its offset is committed when Kafka has its bill, never before.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import CommitFailedError

GROUP = "billing"
TIMEOUT_MS = 3_000
"""How long a broker may take to respond before the worker asks another."""
METADATA_MS = 1_000
"""How old its metadata may be. aiokafka 0.14 can miss that it must refresh them when a broker dies; then it asks the
old leader until they are this old, by default for five minutes."""


def bill_of(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bill of an order: its amount and 20 % tax."""
    return {"order": order["order"], "total": order["amount"] * 120 // 100}


async def work(servers: str, stop: asyncio.Event) -> None:
    """Bill orders until `stop` is set."""
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        request_timeout_ms=TIMEOUT_MS,
        metadata_max_age_ms=METADATA_MS,
    )
    consumer: Any = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=TIMEOUT_MS,
        metadata_max_age_ms=METADATA_MS,
    )
    async with producer, consumer:
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=100)
            orders = [record for records in batches.values() for record in records]
            results = [await producer.send("bills", _bill(order.value), key=order.key) for order in orders]
            await asyncio.gather(*results)
            if orders:
                with contextlib.suppress(CommitFailedError):  # the group gave them to a new member
                    await consumer.commit()


def _bill(order: bytes) -> bytes:
    return json.dumps(bill_of(json.loads(order))).encode()
