"""Bills orders. The bug: an error in one order is logged, and the rest of its batch is committed without a bill."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Producer
from shop import Bill, Order, TaxServiceError

log = logging.getLogger(__name__)


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    while not stop.is_set():
        batch = consumer.consume(100, timeout=0.2)
        try:
            for message in batch:
                bill = make_bill(json.loads(message.value() or b""))
                producer.produce("bills", json.dumps(bill), key=message.key())
        except TaxServiceError as error:
            log.warning("the batch failed: %s", error)
        assert producer.flush() == 0
        if batch:
            consumer.commit(asynchronous=False)
    consumer.close()
