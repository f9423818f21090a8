"""Guarantees hold under faults, on real processes, through the fixture as users have it (H4, J1, M3)."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from harrow import Harrow, controller, isolate, kill, leader, pause, terminate
from long_runs import long_run


def place_orders(bootstrap_servers: str, topic: str, seconds: float = 4.0) -> int:
    """Stands for a user's code: it has a bootstrap address and does not use Harrow."""
    acknowledged = 0
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "log_level": 0,
        "linger.ms": 1,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 100,
        "reconnect.backoff.max.ms": 200,
    }
    producer = Producer(settings)

    def delivered(error: object, _message: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    pause_between = threading.Event()
    for number in range(int(seconds * 200)):
        producer.produce(topic, f"order {number}", key=f"customer {number % 10}", on_delivery=delivered)
        producer.poll(0)
        pause_between.wait(1 / 200)
    assert producer.flush(60) == 0
    return acknowledged


def test_no_order_is_lost(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=3)
    acknowledged = 0
    with harrow.chaos(kill(leader(orders)), pause(controller(), seconds=(0.5, 2.5))) as chaos:
        while chaos.running:
            acknowledged += place_orders(harrow.bootstrap_servers, orders.name, seconds=1)
    verdict = harrow.verify(orders, guarantee="no-loss")
    assert acknowledged > 0
    assert verdict.operation_counts["records_acknowledged_on_the_wire"] >= acknowledged
    assert (harrow.folder / "report.html").stat().st_size > 1000


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(kill(leader("orders", 0), seconds=2.5), marks=long_run),
        pause(leader("orders", 0), seconds=2.5),
        pytest.param(isolate(leader("orders", 0), seconds=2.5), marks=long_run),
        pytest.param(terminate(leader("orders", 0), seconds=2.5), marks=long_run),
    ],
    ids=["kill", "pause", "isolate", "terminate"],
)
def test_a_leader_failure_loses_duplicates_and_reorders_nothing(harrow: Harrow, fault: object) -> None:
    orders = harrow.topic("orders", partitions=1)
    with harrow.chaos(fault) as chaos:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a parameter
        place_orders(harrow.bootstrap_servers, orders.name)
    assert chaos.effects == 1
    harrow.verify(orders, guarantee="exactly-once,ordered")


def test_verifying_a_run_without_traffic_is_unknown_and_fails(harrow: Harrow) -> None:
    from harrow.harness.errors import VerdictError

    quiet = harrow.topic("quiet")
    with pytest.raises(VerdictError, match="unknown") as refusal:
        harrow.verify(quiet, guarantee="no-loss")
    assert "acknowledged" in str(refusal.value)
    assert "repeat with: pytest" in str(refusal.value)
