"""Takes orders. The bug: several requests are in flight without idempotence, so a retry comes after later orders."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial

from confluent_kafka import Producer
from shop import Order


def place_orders(servers: str, orders: Iterable[Order]) -> list[Order]:
    """Place the orders, each as soon as it is there; return those that were placed, in this order."""
    taken: list[Order] = []
    failed: set[int] = set()
    settings = {"acks": "all", "max.in.flight": 5}
    producer = Producer({"bootstrap.servers": servers, "batch.num.messages": 1, **settings})

    def note(number: int, error: object, _: object) -> None:
        if error:
            failed.add(number)

    for order in orders:
        report = partial(note, order["order"])
        producer.produce("orders", json.dumps(order), key=str(order["customer"]), on_delivery=report)
        taken.append(order)
    producer.flush()
    return [order for order in taken if order["order"] not in failed]
