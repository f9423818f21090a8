"""Takes orders. The key determines the partition, so a customer's orders stay in order."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders; return them in this order."""
    placed: list[Order] = []
    settings = {"enable.idempotence": True, "partitioner": "murmur2"}
    producer = Producer({"bootstrap.servers": servers, **settings})
    for order in orders:
        producer.produce("orders", json.dumps(order), key=str(order["customer"]))
        placed.append(order)
    assert producer.flush() == 0
    return placed
