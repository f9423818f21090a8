"""Writes bills to a table. The bug: an order that is delivered again after a restart gets a second bill."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer
from shop import Bill, Order

TABLE = 'CREATE TABLE IF NOT EXISTS bills ("order" INTEGER, customer TEXT, total INTEGER)'
INSERT = "INSERT INTO bills VALUES (:order, :customer, :total)"


def bill_orders(servers: str, database: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    bills = sqlite3.connect(database, isolation_level=None)
    bills.execute(TABLE)
    group = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            batch = consumer.consume(100, timeout=0.2)
            for message in batch:
                bills.execute(INSERT, make_bill(json.loads(message.value() or b"")))
            if batch:
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()
        bills.close()
