"""A transactional service that stops for ever when a broker dies: confluentinc/librdkafka#5511.

The service does everything right. The brokers do, too. Its Kafka client does not.

The client asks again for the group's coordinator when the connection of any broker comes up. So each broker leads a
partition of the bills, and the client is connected to all of them before one dies.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harrow import Harrow, VerdictError, group_coordinator, kill, mapped

PARTITIONS = 3
"""One for each broker."""
SERVICE = Path(__file__).with_name("billing.py")


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until `condition()` is true; return whether it became true in time."""
    deadline, pace = monotonic() + seconds, threading.Event()
    while not condition():
        if monotonic() > deadline:
            return False
        pace.wait(0.05)
    return True


class Shop:
    """Places orders, and counts the bills that were committed."""

    def __init__(self, servers: str) -> None:
        self.placed = 0
        self.billed = 0
        self.billed_in = set[int | None]()
        """The partitions that have bills."""
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._bills = Consumer({"bootstrap.servers": servers, "group.id": "shop", "isolation.level": "read_committed"})
        self._bills.assign([TopicPartition("bills", number, 0) for number in range(PARTITIONS)])

    def note(self, text: str) -> None:
        """Write a line of the shop's diary."""
        self._producer.produce("diary", text)
        assert self._producer.flush(30) == 0

    def place(self) -> None:
        """Place an order."""
        self._producer.produce("orders", json.dumps({"order": self.placed}))
        self.placed += 1
        assert self._producer.flush(30) == 0

    def everything_is_billed(self) -> bool:
        """Whether each order has a bill."""
        message = self._bills.poll(0.1)
        if message is not None and not message.error():
            self.billed += 1
            self.billed_in.add(message.partition())
        return self.billed == self.placed

    def close(self) -> None:
        """Leave."""
        self._bills.close()


def bill_of(order: Any) -> dict[str, int]:
    """What the service should write."""
    return {"order": order["order"], "total": 5}


def test_orders_are_billed_although_a_broker_dies(harrow: Harrow, tmp_path: Path) -> None:
    orders = harrow.topic("orders", partitions=1)
    bills = harrow.topic("bills", partitions=PARTITIONS)
    harrow.topic("diary", partitions=1)
    health = tmp_path / "health"
    health.touch()
    servers = harrow.bootstrap_servers
    service = harrow.program("billing", [sys.executable, str(SERVICE), servers, str(health)])
    shop = Shop(servers)
    while len(shop.billed_in) < PARTITIONS:
        shop.place()
        assert until(shop.everything_is_billed, 60)
    assert until(lambda: health.read_text() == "3", 30)
    # 1. The broker that coordinates the service's group dies, while the service has nothing to do.
    # 2. The brokers leave it out of their metadata, and the client forgets it, but not that it is the coordinator.
    # 3. Another broker has taken the group over, but the client never asks for it, and waits without an end.
    with harrow.chaos(kill(group_coordinator("billing"), seconds=5)) as chaos:
        shop.note("closed for lunch")
        assert until(lambda: health.read_text() == "2", 30)
        while chaos.running:
            shop.place()
            until(shop.everything_is_billed, 0.5)
    assert service.alive
    # the killed broker is back, and the service was told to wait for at most five seconds
    assert not until(shop.everything_is_billed, 7)
    shop.close()
    with pytest.raises(VerdictError) as found:
        harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
    assert "missing-output" in found.value.verdict.anomaly_names()
