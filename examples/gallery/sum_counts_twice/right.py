"""Keeps each customer's turnover by minute. A transaction of the database stores the sums and the position."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from threading import Event

from confluent_kafka import Consumer
from shop import Order

TABLES = """
CREATE TABLE IF NOT EXISTS turnover
    (customer TEXT, minute INTEGER, total INTEGER, PRIMARY KEY (customer, minute));
CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER);
"""
ADD = (
    "INSERT INTO turnover VALUES (:customer, :at / 60, :amount) "
    "ON CONFLICT (customer, minute) DO UPDATE SET total = total + :amount"
)
ADVANCE = (
    "INSERT INTO positions VALUES (?1, ?2) ON CONFLICT (partition) DO UPDATE SET position = ?2 WHERE position < ?2"
)


def sum_up(servers: str, database: str, check: Callable[[Order], Order], stop: Event) -> None:
    """Keep the sums up to date until `stop` is set."""
    sums = sqlite3.connect(database, isolation_level=None)
    sums.executescript(TABLES)
    group = {"group.id": "turnover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **group})
    consumer.subscribe(["orders"])
    try:
        while not stop.is_set():
            batch = consumer.consume(100, timeout=0.2)
            for message in batch:
                order = check(json.loads(message.value() or b""))
                sums.execute("BEGIN IMMEDIATE")
                place = (message.partition(), (message.offset() or 0) + 1)
                if sums.execute(ADVANCE, place).rowcount == 1:
                    sums.execute(ADD, order)
                sums.execute("COMMIT")
            if batch:
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()
        sums.close()
