"""Writes bills of a share group to a table. The bug: an order whose lock has ended gets a second bill."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import ShareConsumer
from shop import Bill, Order

TABLE = 'CREATE TABLE IF NOT EXISTS bills ("order" INTEGER, customer TEXT, total INTEGER)'
INSERT = "INSERT INTO bills VALUES (:order, :customer, :total)"


def bill_orders(servers: str, database: str, make_bill: Callable[[Order], Bill], stop: Event) -> None:
    """Write a bill for each order until `stop` is set."""
    bills = sqlite3.connect(database, isolation_level=None)
    bills.execute(TABLE)
    group = {"group.id": "billing", "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({"bootstrap.servers": servers, **group})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            for message in consumer.poll(0.1):
                bills.execute(INSERT, make_bill(json.loads(message.value() or b"")))
                consumer.acknowledge(message)
            consumer.commit_sync()  # an order whose lock has ended is delivered again
    finally:
        consumer.close()
        bills.close()
