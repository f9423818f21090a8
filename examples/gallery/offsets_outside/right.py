"""Bills orders in transactions. The offset of an order is committed in the transaction of its bill."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Producer
from shop import Order, bill_of


def bill_orders(servers: str, notify: Callable[[Order], object], stop: Event) -> None:
    """Write a bill for each order and notify its customer, until `stop` is set."""
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "billing"})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            order = json.loads(message.value() or b"")
            producer.begin_transaction()
            producer.produce("bills", json.dumps(bill_of(order)), key=message.key())
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            producer.commit_transaction()
            notify(order)
    finally:
        consumer.close()
