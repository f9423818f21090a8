"""Sets prices. The bug: two instances change the same article, and each stamps its changes with its own clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from typing import Any

from confluent_kafka import Producer

Change = dict[str, Any]
Clock = Callable[[], float]


class Instance:
    """An instance of the service, on a machine with a clock of its own."""

    def __init__(self, servers: str, clock: Clock) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        self._clock = clock

    def set_price(self, article: str, price: int) -> Change:
        """Publish a new price; readers take the price with the latest time."""
        change = {"article": article, "price": price, "at": self._clock()}
        self._producer.produce("prices", json.dumps(change), key=article)
        assert self._producer.flush() == 0
        return change


def set_prices(servers: str, prices: Iterable[tuple[str, int]], clocks: Sequence[Clock]) -> list[Change]:
    """Set the prices, each on the next instance; return the changes in the order of their times."""
    instances = [Instance(servers, clock) for clock in clocks]
    changes = [instance.set_price(*price) for price, instance in zip(prices, cycle(instances), strict=False)]
    return sorted(changes, key=lambda change: change["at"])
