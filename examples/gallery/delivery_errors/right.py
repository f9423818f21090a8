"""Takes orders. An order that failed stays in the outbox and is sent again until its delivery report is good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders; return them."""
    placed: list[Order] = []
    outbox: list[Order] = []
    settings = {"enable.idempotence": True, "message.timeout.ms": 300}
    producer = Producer({"bootstrap.servers": servers, **settings})

    def keep(order: Order) -> Callable[[KafkaError | None, Message], None]:
        return lambda error, _: outbox.append(order) if error else None

    for order in orders:
        producer.produce("orders", json.dumps(order), on_delivery=keep(order))
        producer.poll(0)
        placed.append(order)
    producer.flush()
    while outbox:
        order = outbox.pop()
        producer.produce("orders", json.dumps(order), on_delivery=keep(order))
        producer.flush()
    return placed
