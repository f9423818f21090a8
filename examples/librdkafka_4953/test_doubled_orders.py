"""An idempotent producer that doubles records: confluentinc/librdkafka#4953, every time.

The service below does everything right. The brokers do, too. Its Kafka client does not.
"""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from harrow import Harrow, VerdictError, leader, lose_response, refuse_request


class OrderService:
    """Places orders in two partitions, and keeps several requests to each of them in flight."""

    def __init__(self, servers: str) -> None:
        self.placed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": "order-service",
                "enable.idempotence": True,  # which promises: no order twice
                "batch.num.messages": 1,
                "retry.backoff.ms": 2_000,  # a batch in doubt waits so long for its next attempt
                "retry.backoff.max.ms": 2_000,
            }
        )

    def place_orders(self) -> None:
        """Send twenty orders to each partition: faster than the brokers answer, so that requests are in flight."""
        for _ in range(20):
            for partition in (0, 1):
                order = json.dumps({"order": self.placed})
                self._producer.produce("orders", order, partition=partition)
                self.placed += 1
        self._producer.poll(0.01)

    def close(self) -> None:
        """Wait for all acknowledgements."""
        assert self._producer.flush(120) == 0


def test_no_order_is_there_twice(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2)
    service = OrderService(harrow.bootstrap_servers)
    # 1. A batch of partition 1 is appended, and its response is lost: the client must ask again, with the same epoch.
    # 2. A batch of partition 0 is refused. The batches behind it are out of order, and the client takes a new epoch.
    with harrow.chaos(
        lose_response("Produce", nth=5, target=leader(orders, 1), client="order-service"),
        refuse_request(
            "Produce",
            "NOT_ENOUGH_REPLICAS",
            nth=2,  # librdkafka sends five at a time: three more are in flight behind it
            target=leader(orders, 0),
            client="order-service",
        ),
    ) as chaos:
        while chaos.running:
            service.place_orders()
    service.close()
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="exactly-once")
    assert found.value.verdict.anomaly_names() == {"duplicate"}
    assert "the client order-service sent it under producer epoch 0" in str(found.value)
    assert "again under producer epoch 1" in str(found.value)
    assert "confluentinc/librdkafka#4953" in str(found.value)
