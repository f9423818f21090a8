"""An order whose send is in doubt is sent again by a new producer: the verdict names it before it does harm (L2)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow import Harrow

TIMEOUT_S = 30


@pytest.mark.harrow(brokers=1)
def test_orders_that_a_new_producer_sends_again_are_named_also_when_nothing_is_forbidden(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    broker = harrow.cluster.brokers[1]
    first: Any = harrow.producer(client_id="shop", message_timeout_ms=1_500)
    first.produce(orders.name, "order 1")
    assert first.flush(TIMEOUT_S) == 0
    broker.pause()
    first.produce(orders.name, "order 2")
    first.flush(TIMEOUT_S)
    broker.resume()
    second: Any = harrow.producer(client_id="shop")
    for order in ("order 2", "order 3"):
        second.produce(orders.name, order)
    assert second.flush(TIMEOUT_S) == 0
    verdict = harrow.verify(orders, guarantee="at-least-once")
    assert verdict.valid, verdict
    assert verdict.anomaly_counts == {"resend-in-doubt": 1}
    assert "sent the record without a certain outcome" in str(verdict.to_json())
