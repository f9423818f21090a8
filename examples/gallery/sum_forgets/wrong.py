"""Publishes each customer's turnover. The bug: the sums are in memory, and a restart begins at zero."""

from __future__ import annotations

import json
from collections import Counter
from threading import Event

from confluent_kafka import Consumer, Producer


def sum_up(servers: str, stop: Event) -> None:
    """Publish a customer's new turnover after each order until `stop` is set."""
    totals: Counter[str] = Counter()
    group = {"group.id": "turnover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error():
            continue
        order = json.loads(message.value() or b"")
        customer = order["customer"]
        totals[customer] += order["amount"]
        total = {"customer": customer, "total": totals[customer]}
        producer.produce("totals", json.dumps(total), key=customer)
        assert producer.flush() == 0
        consumer.commit(message=message, asynchronous=False)
    consumer.close()
