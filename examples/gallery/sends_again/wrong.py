"""Takes orders. The bug: when a report is late, the service sends the order again, beside the client's own retries."""

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
        before = len(placed)
        while len(placed) == before:
            producer.produce("orders", json.dumps(order), on_delivery=confirm)
            producer.flush(0.3)
    producer.flush()
    return [order for number, order in enumerate(placed) if order not in placed[:number]]
