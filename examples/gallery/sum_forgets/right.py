"""Publishes each customer's turnover. A restart reads the sums, and up to where they go, from its own output."""

from __future__ import annotations

import json
from collections import Counter
from threading import Event

from confluent_kafka import Consumer, Producer, TopicPartition


def sum_up(servers: str, stop: Event) -> None:
    """Publish a customer's new turnover after each order until `stop` is set."""
    totals, position = published(servers)
    group = {"group.id": "turnover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is None or message.error() or (message.offset() or 0) < position:
            continue
        order = json.loads(message.value() or b"")
        customer = order["customer"]
        totals[customer] += order["amount"]
        total = {"customer": customer, "total": totals[customer], "offset": message.offset()}
        producer.produce("totals", json.dumps(total), key=customer)
        assert producer.flush() == 0
        consumer.commit(message=message, asynchronous=False)
    consumer.close()


def published(servers: str) -> tuple[Counter[str], int]:
    """Return the sums that an earlier run published, and the offset of the next order."""
    totals: Counter[str] = Counter()
    position = 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "turnover-restore"})
    output = TopicPartition("totals", 0, 0)
    _, left = consumer.get_watermark_offsets(output)
    consumer.assign([output])
    while left > 0:
        for message in consumer.consume(left, timeout=0.2):
            total = json.loads(message.value() or b"")
            totals[total["customer"]] = total["total"]
            position = total["offset"] + 1
            left -= 1
    consumer.close()
    return totals, position
