"""Keeps each customer's last order in a table. The bug: a member without its partitions goes on with its batch."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer, KafkaException
from shop import Order

log = logging.getLogger(__name__)

TABLE = 'CREATE TABLE IF NOT EXISTS last (customer PRIMARY KEY, "order" INTEGER, position INTEGER)'
UPSERT = (
    "INSERT INTO last VALUES (:customer, :order, :position) ON CONFLICT (customer) "
    'DO UPDATE SET "order" = excluded."order", position = excluded.position'
)
GROUP = {
    "group.id": "last-orders",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 1000,
    "max.poll.interval.ms": 1000,
}


def keep_last_orders(servers: str, database: str, check: Callable[[Order], Order], stop: Event) -> None:
    """Keep the table up to date until `stop` is set."""
    rows = sqlite3.connect(database, isolation_level=None)
    rows.execute(TABLE)
    consumer = Consumer({"bootstrap.servers": servers, **GROUP})
    consumer.subscribe(["orders"])
    while not stop.is_set():
        batch = consumer.consume(100, timeout=0.2)
        messages = [message for message in batch if not message.error()]
        for message in messages:
            order = check(json.loads(message.value() or b""))
            rows.execute(UPSERT, {**order, "position": message.offset()})
        try:
            if messages:
                consumer.commit(asynchronous=False)
        except KafkaException as error:
            log.warning("another member has the partitions: %s", error)
    consumer.close()
    rows.close()
