"""Bills orders of a share group. The bug: an order that cannot be billed is released, until no member gets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from shop import Bill, Order, TaxServiceError


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            for message in consumer.poll(0.1):
                kind = AcknowledgeType.ACCEPT
                try:
                    bill = make_bill(json.loads(message.value() or b""))
                    producer.produce("bills", json.dumps(bill), key=message.key())
                except TaxServiceError:
                    kind = AcknowledgeType.RELEASE
                assert producer.flush() == 0
                consumer.acknowledge(message, kind)
            consumer.commit_sync()
    finally:
        consumer.close()
