"""Bills orders. An order that fails goes to a retry topic, and after three attempts gets a bill without a total."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Message, Producer
from shop import Bill, Order, TaxServiceError

ATTEMPTS = 3


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders", "orders.retry"])
    try:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            work_on(message, make_bill, producer)
            producer.flush()
            consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def work_on(message: Message, make_bill: Callable[[Order], Bill], producer: Producer) -> None:
    """Write the bill of an order, or keep the order for later."""
    order = json.loads(message.value() or b"")
    attempt = order.pop("attempt", 1)
    try:
        producer.produce("bills", json.dumps(make_bill(order)), key=message.key())
    except TaxServiceError:
        if attempt < ATTEMPTS:
            again = json.dumps({**order, "attempt": attempt + 1})
            producer.produce("orders.retry", again, key=message.key())
        else:
            incomplete = json.dumps({"order": order["order"], "total": None})
            producer.produce("bills", incomplete, key=message.key())
