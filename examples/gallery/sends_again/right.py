"""Takes orders. The service waits for the report: the client sends again by itself, and the broker recognises that."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders one after another; return them."""
    placed: list[Order] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def confirm(error: object, message: Any) -> None:
        if not error:
            placed.append(json.loads(message.value()))

    for order in orders:
        producer.produce("orders", json.dumps(order), on_delivery=confirm)
        producer.flush()
    return placed
