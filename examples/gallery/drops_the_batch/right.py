"""Bills orders. An order that fails is tried again; the batch is committed when each of its orders has a bill."""

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
        for message in batch:
            bill = patiently(make_bill, json.loads(message.value() or b""))
            producer.produce("bills", json.dumps(bill), key=message.key())
        assert producer.flush() == 0
        if batch:
            consumer.commit(asynchronous=False)
    consumer.close()


def patiently(make_bill: Callable[[Order], Bill], order: Order) -> Bill:
    """Make the bill, with a second and a third attempt while the tax service is down."""
    for _ in range(2):
        try:
            return make_bill(order)
        except TaxServiceError as error:
            log.warning("order %s is tried again: %s", order["order"], error)
    return make_bill(order)
