"""Takes orders. The bug: no code looks at the delivery reports, so an order that failed is forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders; return them."""
    placed: list[Order] = []
    settings = {"enable.idempotence": True, "message.timeout.ms": 300}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for order in orders:
        producer.produce("orders", json.dumps(order))
        producer.poll(0)
        placed.append(order)
    producer.flush()
    return placed
