"""Each order has one row, although the connection with the database is lost between COMMIT and its response."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bills_job import bill_of
from confluent_kafka import Producer
from harrow import Harrow, VerdictError, cut, dependency, kill, leader, mapped, pause, table
from postgres_server import database_at, long_run, postgres

PROJECT = Path(__file__).parents[1]
RIGHT, WRONG = PROJECT / "bills_job.py", PROJECT / "wrong" / "inserts_again.py"
DATABASE = dependency("database")
LOST_RESPONSES = cut(DATABASE, direction="out", seconds=0.5, heals_by="reset")
"""The server receives the INSERT and commits it; its response is held back, and the connection is reset."""


@pytest.fixture
def database(harrow: Harrow) -> Iterator[str]:
    with postgres(harrow) as address:
        yield address


class OrderBook:
    """Places orders, about a hundred a second."""

    def __init__(self, servers: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers})
        self._number = count()

    def place(self, orders: int) -> None:
        """Place so many orders; Kafka has confirmed them when this returns."""
        for number in islice(self._number, orders):
            order = {"order": number, "amount": 100 + number}
            self._producer.produce("orders", json.dumps(order), str(number % 5))
        assert self._producer.flush(60) == 0


def bill_orders(harrow: Harrow, address: str, job: Path, *faults: Any) -> None:
    """Bill orders by a job, under faults, until its group has caught up."""
    environment = {"BILLS_DATABASE": database_at(harrow.dependency("database", address)), "PYTHONPATH": str(PROJECT)}
    harrow.topic("orders", partitions=2)
    billing = harrow.program("billing", [sys.executable, str(job)], environment=environment)
    place = OrderBook(harrow.bootstrap_servers).place
    place(20)
    harrow.await_caught_up("billing", "orders")  # the job is connected with the table
    with harrow.chaos(*faults) as chaos:
        while chaos.running:
            place(1)
    place(20)
    harrow.await_caught_up("billing", "orders")
    billing.stop()  # before the server, which waits for its clients when it ends


def verify(harrow: Harrow, address: str) -> None:
    """Compare the table with the topic."""
    with psycopg.connect(database_at(address)) as connection:
        harrow.verify_pipeline(
            "orders",
            table(connection, "bills"),
            guarantee="exactly-once",
            record_id="order",
            relation=mapped(bill_of),
            group="billing",
        )


@long_run
def test_a_repeated_insert_has_no_effect(harrow: Harrow, database: str) -> None:
    bill_orders(harrow, database, RIGHT, LOST_RESPONSES, pause(leader("orders"), seconds=1))
    verify(harrow, database)


@long_run
def test_every_order_has_a_row_although_the_database_is_killed(harrow: Harrow, database: str) -> None:
    bill_orders(harrow, database, RIGHT, kill(DATABASE, seconds=0.5), LOST_RESPONSES)
    verify(harrow, database)


def test_without_a_key_a_repeated_insert_doubles_its_rows(harrow: Harrow, database: str) -> None:
    bill_orders(harrow, database, WRONG, LOST_RESPONSES)
    with pytest.raises(VerdictError) as failure:
        verify(harrow, database)
    verdict = failure.value.verdict
    assert verdict.anomaly_names() == {"duplicate-output"}
    assert "the dependency 'database' could send nothing to its clients" in str(verdict)
    assert "then lost its connections, so that what it had sent never arrived" in str(verdict)
