"""The shop of this gallery: orders, bills, and who places orders correctly. Everything runs in one asyncio loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

Producer: Any = AIOKafkaProducer
Consumer: Any = AIOKafkaConsumer
"""aiokafka's classes, which have no types."""
Order = dict[str, Any]
PAUSE_S = 0.02
FAST_GROUP = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 500}
"""A member that died is out of its group soon."""
FRESH_METADATA = {"metadata_max_age_ms": 1_000}
"""A consumer of aiokafka 0.14 that has no position yet asks a broker that leads no more until its metadata is old."""


def new_order(number: int) -> Order:
    """Return order `number`, of one of three customers."""
    return {"order": number, "customer": f"customer-{number % 3}", "amount": 10 + number}


def new_orders(first: int, end: int) -> list[Order]:
    """Return the orders from `first` up to `end`, which is left out."""
    return [new_order(number) for number in range(first, end)]


def bill_of(order: Order) -> dict[str, Any]:
    """Return the bill of an order: the amount and 20 % tax."""
    return {"order": order["order"], "customer": order["customer"], "total": order["amount"] * 120 // 100}


def encoded(row: dict[str, Any]) -> dict[str, bytes]:
    """Return the value and the key of a record, as aiokafka's `send` takes them."""
    return {"value": json.dumps(row).encode(), "key": str(row["customer"]).encode()}


def order_of(record: Any) -> Order:
    """Return the order that a record has."""
    order: Order = json.loads(record.value)
    return order


def new_consumer(*topics: str, servers: str, group: str, **options: Any) -> Any:
    """Return a consumer that begins at the first order and commits only where the service says so."""
    settings = {**FAST_GROUP, **FRESH_METADATA, "auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return Consumer(*topics, bootstrap_servers=servers, group_id=group, **settings)


def new_producer(servers: str, **options: Any) -> Any:
    """Return an idempotent producer."""
    return Producer(bootstrap_servers=servers, **{"enable_idempotence": True, **options})


async def place_orders(servers: str, orders: Iterable[Order], pause_s: float = PAUSE_S) -> None:
    """Place orders correctly: the services under test consume them."""
    async with new_producer(servers) as producer:
        for order in orders:
            await producer.send_and_wait("orders", **encoded(order))
            await asyncio.sleep(pause_s)
