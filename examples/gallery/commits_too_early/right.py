"""Bills orders. The offset of an order is committed when Kafka has its bill."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Producer
from shop import Bill, Order


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            bill = make_bill(json.loads(message.value() or b""))
            producer.produce("bills", json.dumps(bill), key=message.key())
            assert producer.flush() == 0
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()
