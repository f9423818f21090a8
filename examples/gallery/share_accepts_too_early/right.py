"""Bills orders of a share group. An order is accepted when Kafka has its bill."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Producer, ShareConsumer
from shop import Bill, Order


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            for message in consumer.poll(0.1):
                bill = make_bill(json.loads(message.value() or b""))
                producer.produce("bills", json.dumps(bill), key=message.key())
                assert producer.flush() == 0
                consumer.acknowledge(message)
            consumer.commit_sync()
    finally:
        consumer.close()
