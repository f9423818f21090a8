"""`harrow chaos --workload shop`: a customer who places orders while the faults are active."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Self

from harrow import Harrow, Topic, Verdict


class ShopWorkload:
    """Places an order every few milliseconds, and knows which orders it placed."""

    def __init__(self, harrow: Harrow, orders: Topic, producer: Mapping[str, Any]) -> None:
        self.problems: list[str] = []
        self._harrow = harrow
        self._orders = orders
        self._producer = harrow.producer(**producer)
        self._placed: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._place, name="shop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._producer.flush(60):
            self.problems.append("orders were not acknowledged within 60 s")

    def _place(self) -> None:
        while not self._stop.wait(0.005):
            number = len(self._placed)
            self._producer.produce(self._orders.name, json.dumps({"order": number}), key=str(number % 7))
            self._producer.poll(0)
            self._placed.append(number)

    def judge(self, guarantee: str) -> Verdict:
        """Judge whether every order is there that was placed."""
        return self._harrow.verify(self._orders, guarantee=guarantee, record_id="order", expected=self._placed)
