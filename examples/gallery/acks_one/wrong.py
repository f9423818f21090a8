"""Takes orders. The bug: with acks=1 an order counts as placed before any follower has it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders; return those that Kafka acknowledged."""
    placed: list[Order] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "1"})

    def confirm(order: Order) -> Callable[[KafkaError | None, Message], None]:
        return lambda error, _: None if error else placed.append(order)

    for order in orders:
        producer.produce("orders", json.dumps(order), on_delivery=confirm(order))
        producer.poll(0)
    producer.flush()
    return placed
