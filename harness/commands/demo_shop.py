"""The shops of `harrow demo`: an application that loses orders, and the same application with another setting.

A shop is a plain confluent-kafka producer, as a user would write it: nothing in it belongs to Harrow. It counts an
order as placed when Kafka acknowledged it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

PACE_S = 0.005
FLUSH_TIMEOUT_S = 30.0
Order = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopKind:
    """How a shop produces."""

    name: str
    acks: str
    story: str


WRONG_SHOP = ShopKind(
    name="wrong-shop", acks="1", story="A shop with acks=1: an order counts as placed when the leader alone has it."
)
RIGHT_SHOP = ShopKind(
    name="right-shop",
    acks="all",
    story="The same shop with acks=all: an order counts as placed when all in-sync replicas have it.",
)


@dataclass(slots=True)
class Shop:
    """Places orders in a thread of its own, from `with` to the end of the block."""

    kind: ShopKind
    servers: str
    topic: str
    placed: list[Order] = field(default_factory=list[Order])
    """The orders that Kafka acknowledged."""
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._place_orders, name=self.kind.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(2 * FLUSH_TIMEOUT_S)

    def _place_orders(self) -> None:
        settings = {"bootstrap.servers": self.servers, "acks": self.kind.acks, "log_level": 0}
        producer = Producer(settings)
        number = 0
        while not self._closed.wait(PACE_S):
            order = {"order": number, "customer": f"customer-{number % 7}"}
            producer.produce(self.topic, json.dumps(order), on_delivery=self._confirm(order))
            producer.poll(0)
            number += 1
        producer.flush(FLUSH_TIMEOUT_S)

    def _confirm(self, order: Order) -> Callable[[KafkaError | None, Message], None]:
        return lambda error, _: None if error else self.placed.append(order)
