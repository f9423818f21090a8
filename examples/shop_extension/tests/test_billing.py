"""A billing service is killed by the extension's fault; the extension's check finds orders that are billed twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harrow import Harrow, VerdictError, kill, leader
from harrow.faults import Schedule
from harrow_shop import Service, kill_service, service

HERE = Path(__file__).parent
DEADLINE_S = 60.0
pytestmark = pytest.mark.harrow(config={"group.min.session.timeout.ms": 1000, "group.initial.rebalance.delay.ms": 0})


def billing(harrow: Harrow, manner: str) -> Service:
    """Return the service, which runs while it is entered."""
    return Service("billing", [sys.executable, str(HERE / "billing.py"), harrow.bootstrap_servers, manner], HERE)


def place(producer: Producer, number: int) -> None:
    """Place an order."""
    producer.produce("orders", json.dumps({"order": number, "amount": number % 5}))
    producer.flush(DEADLINE_S)


def bill_while_the_service_is_killed(harrow: Harrow, manner: str) -> int:
    """Place orders until the service has billed, was killed, and has billed them all; return how many."""
    orders = harrow.topic("orders")
    harrow.topic("bills")
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
    placed = 0
    with billing(harrow, manner) as running:
        while placed < 20:
            place(producer, placed)
            placed += 1
        harrow.await_records("bills", placed)
        with harrow.chaos(kill_service(service("billing"), seconds=0.2), kill(leader(orders), seconds=0.2)) as chaos:
            while chaos.running:
                place(producer, placed)
                placed += 1
        assert running.starts == 2
        expected = placed if manner == "careful" else placed + 20
        harrow.await_records("bills", expected)
    return placed


def test_a_service_that_bills_again_after_a_kill_is_found(harrow: Harrow) -> None:
    bill_while_the_service_is_killed(harrow, "careless")
    assert harrow.verify(guarantee="no-loss").valid, "the check is not asked for"
    with pytest.raises(VerdictError) as found:
        harrow.verify(guarantee="no-loss, billed-once")
    verdict = found.value.verdict
    assert verdict.anomaly_counts["billed-twice"] >= 20
    assert "orders have more than one bill (billed-twice)" in str(verdict)
    assert "INVALID: billed-once does not hold; judged: no-loss, billed-once" in str(verdict)


def test_a_service_that_asks_before_it_bills_is_valid(harrow: Harrow) -> None:
    placed = bill_while_the_service_is_killed(harrow, "careful")
    verdict = harrow.verify(guarantee="no-loss, billed-once")
    assert verdict.operation_counts["records_judged_by_billed-once"] == placed
    schedule = json.loads(harrow.schedule.to_json())
    assert schedule["steps"][0]["fault"]["target"] == {"role": "service", "name": "billing"}
    assert Schedule.from_json(harrow.schedule.to_json()) == harrow.schedule


def test_the_services_bills_follow_from_its_orders(harrow: Harrow) -> None:
    harrow.topic("orders")
    harrow.topic("bills")
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
    with billing(harrow, "careful"):
        for number in range(1, 5):
            place(producer, number)
        harrow.await_records("bills", 4)
    verdict = harrow.verify_pipeline("orders", "bills", record_id="order", relation="billed")
    assert verdict.valid
