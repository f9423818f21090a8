"""Takes orders. With idempotence the broker accepts the requests in flight in their order only."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders, each as soon as it is there; return them in this order."""
    placed: list[Order] = []
    settings = {"enable.idempotence": True, "max.in.flight": 5}
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 1, **settings})
    for order in orders:
        producer.produce("orders", json.dumps(order), key=str(order["customer"]))
        placed.append(order)
    producer.flush()
    return placed
