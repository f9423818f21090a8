"""Bills orders in transactions, in several instances. Each instance has a transactional id of its own."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from shop import Bill, Order

log = logging.getLogger(__name__)


def bill_orders(servers: str, instance: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order of this instance's partitions until `stop` is set."""
    group = {
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 500,
    }
    consumer = Consumer({"bootstrap.servers": servers, "client.id": instance, **group})
    transactional_id = {"transactional.id": f"billing-{instance}"}
    producer = Producer({"bootstrap.servers": servers, **transactional_id})
    producer.init_transactions()
    consumer.subscribe(["orders"])
    while not stop.is_set():
        message: Any = consumer.poll(0.1)
        if message is None or message.error():
            continue
        try:
            bill = make_bill(json.loads(message.value() or b""))
            producer.begin_transaction()
            producer.produce("bills", json.dumps(bill), key=message.key())
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
            producer.commit_transaction()
        except KafkaException as error:
            log.warning("order at offset %s: %s", message.offset(), error)
            with contextlib.suppress(KafkaException):
                producer.abort_transaction()
            again = TopicPartition("orders", message.partition(), message.offset())
            with contextlib.suppress(KafkaException):  # the partition belongs to another instance
                consumer.seek(again)
    consumer.close()
