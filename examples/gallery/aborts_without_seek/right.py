"""Bills orders in transactions. After an aborted transaction the consumer seeks back to the order."""

from __future__ import annotations

import json
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, Producer, TopicPartition
from shop import Bill, Order, TaxServiceError


def bill_orders(servers: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
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
            producer.begin_transaction()
            try:
                bill = make_bill(json.loads(message.value() or b""))
            except TaxServiceError:
                producer.abort_transaction()
                consumer.seek(TopicPartition("orders", message.partition() or 0, message.offset() or 0))
                continue
            producer.produce("bills", json.dumps(bill), key=message.key())
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            producer.commit_transaction()
    finally:
        consumer.close()
