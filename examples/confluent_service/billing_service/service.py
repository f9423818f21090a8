"""Reads orders, writes bills: at least once. An order is committed when Kafka has its bill."""

from __future__ import annotations

import json
import time
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from .core import bill_of

GROUP = "billing"
BATCH = 100
COMMIT_S, RETRY_S = 30.0, 0.1
"""How long a commit waits for a coordinator, and between two attempts."""
NO_COORDINATOR = frozenset(
    {
        KafkaError._WAIT_COORD,  # noqa: SLF001 - confluent's public name of a local error
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""The group has no coordinator at this moment: its broker failed, and another one takes the group over."""
REBALANCED = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001 - confluent's public name of a local error
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
"""The partitions are with another instance now, or soon: it bills the orders again."""


class BillingService:
    """One instance of the service."""

    def __init__(self, servers: str, **settings: Any) -> None:
        """`settings`: further settings of the consumer."""
        common = {"bootstrap.servers": servers, "client.id": "billing-service"}
        group = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._consumer = Consumer({**common, **group, **settings})
        self._producer = Producer({**common, "enable.idempotence": True, "linger.ms": 5})
        self._failed: list[KafkaError] = []

    def run(self, stop: Event) -> None:
        """Bill orders until `stop` is set. Raises KafkaException when a bill cannot be written."""
        self._consumer.subscribe(["orders"])
        try:
            while not stop.is_set():
                batch = self._consumer.consume(BATCH, timeout=0.2)
                orders = [message for message in batch if message.error() is None]
                if orders:
                    self._bill(orders)
        finally:
            self._consumer.close()

    def _bill(self, orders: list[Message]) -> None:
        for order in orders:
            bill = bill_of(json.loads(order.value() or b""))
            value = json.dumps(bill)
            self._producer.produce("bills", value, key=order.key(), on_delivery=self._delivered)
        self._producer.flush()
        if self._failed:
            # nothing is committed: the next start bills again
            raise KafkaException(self._failed[0])
        self._commit()

    def _commit(self) -> None:
        deadline = time.monotonic() + COMMIT_S
        while True:
            try:
                self._consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if code in REBALANCED:
                    return
                if code not in NO_COORDINATOR or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failed.append(error)
