"""Where a coordinator has no tap, a verdict on transactions is unknown and says why (L6)."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from harrow import Harrow
from harrow.harness.errors import VerdictError
from transactional_clients import TIMEOUT_S, transactional_producer

pytestmark = pytest.mark.harrow(brokers=1, config={"harrow.tap": False})


def test_transactions_without_tap_are_unknown_and_other_records_are_judged(harrow: Harrow) -> None:
    plain, orders = harrow.topic("plain", partitions=1), harrow.topic("orders", partitions=1)
    usual = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    usual.produce(plain.name, "0")
    assert usual.flush(TIMEOUT_S) == 0
    producer = transactional_producer(harrow.bootstrap_servers)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(orders.name, "0")
    producer.commit_transaction(TIMEOUT_S)
    with pytest.raises(VerdictError, match=r"no tap of the coordinators of 1 broker \(1\)") as found:
        harrow.verify(orders, guarantee="exactly-once", record_id=str, expected=["0"])
    assert "unknown" in str(found.value)
    with pytest.raises(VerdictError) as found:
        harrow.verify(plain, guarantee="exactly-once")
    assert "no tap of the coordinators" not in str(found.value), "no transaction is in it"
