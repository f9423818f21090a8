"""Writes bills to a table. The bug: it commits every hundred orders, and not when its partitions are revoked."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer
from shop import Bill, Order

TABLE = 'CREATE TABLE IF NOT EXISTS bills ("order" INTEGER, customer TEXT, total INTEGER)'
INSERT = "INSERT INTO bills VALUES (:order, :customer, :total)"
BATCH = 100


def bill_orders(servers: str, database: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    bills = sqlite3.connect(database, isolation_level=None)
    bills.execute(TABLE)
    group = {
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 500,
    }
    consumer = Consumer({"bootstrap.servers": servers, **group})
    written = 0

    def commit(*_: object) -> None:
        nonlocal written
        if written:
            consumer.commit(asynchronous=False)
        written = 0

    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            bills.execute(INSERT, make_bill(json.loads(message.value() or b"")))
            written += 1
            if written >= BATCH:
                commit()
    finally:
        consumer.close()
        bills.close()
