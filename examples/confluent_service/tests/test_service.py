"""Each order is billed while brokers fail, and while instances of the service are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from billing_service.core import bill_of
from confluent_kafka import Producer
from harrow import Harrow, group_coordinator, kill, mapped, restart

PROJECT = Path(__file__).parents[1]
PARTITIONS = 2
DEADLINE_S = 60.0


def place_orders(servers: str, running: Callable[[], bool] = lambda: False, first: int = 0) -> int:
    """Place a hundred orders, and further ones while `running()` is true; return the number of the next order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    number = first
    while number < first + 100 or running():
        customer = f"customer-{number % 5}"
        order = {"order": number, "customer": customer, "amount": 100 + number}
        producer.produce("orders", json.dumps(order), key=customer)
        producer.poll(0.005)
        number += 1
    assert producer.flush(DEADLINE_S) == 0
    return number


@contextmanager
def billing_service(servers: str) -> Generator[subprocess.Popen[bytes]]:
    """Run an instance of the service as a process, and end it."""
    settings = {"KAFKA_BOOTSTRAP_SERVERS": servers, "BILLING_SESSION_TIMEOUT_MS": "1500"}
    command = [sys.executable, "-m", "billing_service"]
    service = subprocess.Popen(command, cwd=PROJECT, env={**os.environ, **settings})
    try:
        yield service
    finally:
        service.terminate()
        service.wait()


def test_every_order_is_billed_while_brokers_fail(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=PARTITIONS)
    bills = harrow.topic("bills", partitions=PARTITIONS)
    servers = harrow.bootstrap_servers
    with billing_service(servers) as service:
        placed = place_orders(servers)
        harrow.await_request("OffsetCommit")
        faults = restart(group_coordinator("billing"), kill=True), kill(1, seconds=0.5)
        with harrow.chaos(*faults) as chaos:
            place_orders(servers, lambda: chaos.running, first=placed)
        harrow.await_caught_up("billing", orders)
        assert service.poll() is None, "the service has ended"
    harrow.verify_pipeline(orders, bills, record_id="order", relation=mapped(bill_of))


def test_every_order_is_billed_although_an_instance_is_killed(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=PARTITIONS)
    bills = harrow.topic("bills", partitions=PARTITIONS)
    servers = harrow.bootstrap_servers
    with billing_service(servers) as first:
        placed = place_orders(servers)
        harrow.await_request("OffsetCommit")
        first.kill()
    with billing_service(servers):
        place_orders(servers, first=placed)
        harrow.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, record_id="order", relation=mapped(bill_of))
