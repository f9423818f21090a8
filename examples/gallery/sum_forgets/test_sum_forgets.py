"""A new version of the service is deployed between two orders of a customer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harrow import Harrow, folded
from shop import new_order
from stage import place, run_until_caught_up
from sum_forgets import right, wrong
from twins import twins


def add(total: Any, order: Any) -> dict[str, Any]:
    return {"customer": order["customer"], "total": total["total"] + order["amount"]}


@twins(wrong.sum_up, right.sum_up, finds={"wrong-output": ["customer-0", "customer-1", "customer-2"]})
def test_the_last_totals_are_right(harrow: Harrow, sum_up: Callable[..., None]) -> None:
    orders, totals = harrow.topic("orders"), harrow.topic("totals")
    place(harrow.bootstrap_servers, map(new_order, range(6)))
    run_until_caught_up(harrow, sum_up, group="turnover")
    place(harrow.bootstrap_servers, map(new_order, range(6, 12)))
    run_until_caught_up(harrow, sum_up, group="turnover")
    turnover = folded(add, {"total": 0}, key="customer")
    harrow.verify_pipeline(orders, totals, guarantee="exactly-once", record_id="customer", relation=turnover)
