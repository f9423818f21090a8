"""An application with transactions under faults of the coordinator and of a leader: exactly once (F3, F4, L5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from harrow import Harrow, isolate, kill, leader, txn_coordinator
from transactional_clients import TIMEOUT_S, transactional_producer
from waiting import until

NAME = "shop"


def commit(producer: Producer) -> bool:
    """Commit, again after an error that allows it; False when the transaction must be aborted."""
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                return False
            if not error.args[0].retriable():
                raise
        else:
            return True


@pytest.mark.harrow
def test_orders_placed_in_transactions_are_there_exactly_once(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=3)
    shop = transactional_producer(
        harrow.bootstrap_servers, NAME, reconnect_backoff_max_ms=200, message_timeout_ms=60_000
    )
    shop.init_transactions(TIMEOUT_S)
    placed: list[int] = []

    def place() -> None:
        part = range(len(placed), len(placed) + 3)
        shop.begin_transaction()
        for order in part:
            value = json.dumps({"order": order})
            shop.produce(orders.name, value, key=f"customer {order % 5}")
        if commit(shop):
            placed.extend(part)
        else:
            shop.abort_transaction(TIMEOUT_S)

    # so long that the next transaction meets the fault
    with harrow.chaos(kill(txn_coordinator(NAME), seconds=2.5)) as chaos:
        while chaos.running:
            place()
    with harrow.chaos(isolate(leader(orders), seconds=2.5)) as chaos:
        while chaos.running:
            place()
    assert placed
    verdict: Any = harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)
    assert verdict.valid, verdict


@pytest.mark.harrow
def test_a_fault_that_holds_back_only_a_commit_is_met(harrow: Harrow) -> None:
    """No record is sent while the coordinator is isolated: EndTxn alone waits for it."""
    orders = harrow.topic("orders", partitions=1)
    shop = transactional_producer(harrow.bootstrap_servers, NAME, reconnect_backoff_max_ms=200)
    shop.init_transactions(TIMEOUT_S)
    shop.begin_transaction()
    for order in range(3):
        shop.produce(orders.name, json.dumps({"order": order}))
    assert shop.flush(TIMEOUT_S) == 0
    with harrow.chaos(isolate(txn_coordinator(NAME), seconds=2)) as chaos:
        until(lambda: chaos.effects == 1, "the coordinator is isolated")
        assert commit(shop)
    verdict: Any = harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=list(range(3)))
    assert verdict.valid, verdict
