"""Bills orders of a share group. The bug: orders are accepted before their bills are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Producer, ShareConsumer
from shop import Bill, Order


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": "billing"})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            batch = list(consumer.poll(0.1))
            consumer.commit_sync()
            for message in batch:
                bill = make_bill(json.loads(message.value() or b""))
                producer.produce("bills", json.dumps(bill), key=message.key())
                producer.flush()
    finally:
        consumer.close()
