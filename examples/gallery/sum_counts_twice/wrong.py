"""Keeps each customer's turnover by minute. The bug: sums and position are stored one after the other."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer
from shop import Order

TABLE = (
    "CREATE TABLE IF NOT EXISTS turnover (customer TEXT, minute INTEGER, total INTEGER, PRIMARY KEY (customer, minute))"
)
ADD = (
    "INSERT INTO turnover VALUES (:customer, :at / 60, :amount) "
    "ON CONFLICT (customer, minute) DO UPDATE SET total = total + :amount"
)


def sum_up(servers: str, database: str, check: Callable[[Order], Order], stop: Event) -> None:
    """Keep the sums up to date until `stop` is set."""
    sums = sqlite3.connect(database, isolation_level=None)
    sums.execute(TABLE)
    group = {"group.id": "turnover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            batch = consumer.consume(100, timeout=0.2)
            for message in batch:
                sums.execute(ADD, check(json.loads(message.value() or b"")))
            if batch:
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()
        sums.close()
