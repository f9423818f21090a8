"""Bills orders: reads the topic `orders` and writes their bills to a table of PostgreSQL, each once.

The offsets are committed after the rows. Where the connection is lost before the response to an INSERT, nobody knows
whether it took effect: the job connects again and repeats it. The key of the table makes that safe.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from threading import Event
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaException

Bill = Mapping[str, int]
TABLE = 'CREATE TABLE IF NOT EXISTS bills ("order" int PRIMARY KEY, total int NOT NULL)'
INSERT = """
INSERT INTO bills ("order", total) SELECT * FROM unnest(%s::int[], %s::int[])
ON CONFLICT ("order") DO NOTHING
"""
PATIENCE_S, RETRY_S = 60.0, 0.2


def bill_of(order: Mapping[str, Any]) -> Bill:
    """Return the bill of an order: its amount and 20 % tax, in cents."""
    return {"order": order["order"], "total": order["amount"] * 120 // 100}


class BillsTable:
    """The table, through a connection that is made again when it was lost."""

    def __init__(self, database: str) -> None:
        """`database`: the connection string."""
        self._database = database
        self._connection: psycopg.Connection[Any] | None = None
        self._run(TABLE)

    def add(self, bills: Sequence[Bill]) -> None:
        """Write bills. They are durable when this returns, all of them."""
        self._run(INSERT, [[bill[name] for bill in bills] for name in ("order", "total")])

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()

    def _run(self, statement: Any, arguments: Any = None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(
                        self._database, autocommit=True, prepare_threshold=None, connect_timeout=5
                    )
                self._connection.execute(statement, arguments)
                return
            except psycopg.OperationalError as error:
                print(f"the database: {error}", flush=True)
                self.close()
                self._connection = None
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)


def run_job(servers: str, database: str, stop: Event) -> None:
    """Work until `stop` is set."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "client.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    with closing(consumer), closing(BillsTable(database)) as table:
        while not stop.is_set():
            messages = [m for m in consumer.consume(100, timeout=0.1) if m.error() is None]
            if not messages:
                continue
            table.add([bill_of(json.loads(message.value() or b"")) for message in messages])
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # the next commit is for these orders, too
                print(f"commit: {error}", flush=True)


def main() -> None:
    """Work until SIGTERM."""
    stop = Event()

    def end(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    run_job(os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["BILLS_DATABASE"], stop)


if __name__ == "__main__":
    main()
