"""Two instances set prices; the clock of the second is five seconds slow. No other fault is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from harrow import Harrow
from twins import twins
from two_writers import right, wrong


def slow_clock() -> float:
    return time.time() - 5


@twins(wrong.set_prices, right.set_prices, finds={"out-of-order": [...]})
def test_prices_of_an_article_stay_in_order(harrow: Harrow, set_prices: Callable[..., list[dict[str, Any]]]) -> None:
    prices = harrow.topic("prices")
    wanted = [(f"article-{number % 3}", number) for number in range(24)]
    changes = set_prices(harrow.bootstrap_servers, wanted, [time.time, slow_clock])
    harrow.verify(prices, guarantee="ordered", record_id="price", expected=changes)
