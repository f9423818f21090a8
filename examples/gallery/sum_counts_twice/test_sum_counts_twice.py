"""The service crashes after it has added some orders of a batch, and before it commits their offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harrow import Harrow, table, windowed
from shop import new_order
from stage import crashing, place, run_until_caught_up
from sum_counts_twice import right, wrong
from twins import twins


def turnover(window: Any) -> dict[str, Any]:
    return {
        "customer": window[0]["customer"],
        "minute": window.start_ms // 60_000,
        "total": sum(order["amount"] for order in window),
    }


def window_of(row: Any) -> tuple[str, int]:
    return row["customer"], row["minute"]


@twins(wrong.sum_up, right.sum_up, finds={"wrong-output": [...]})
def test_every_order_is_counted_once(harrow: Harrow, sum_up: Callable[..., None], tmp_path: Path) -> None:
    orders, database = harrow.topic("orders"), str(tmp_path / "turnover.sqlite")
    place(harrow.bootstrap_servers, map(new_order, range(12)))
    check = crashing(dict, at_order=7)
    run_until_caught_up(harrow, sum_up, database, check, group="turnover")
    sums = table(f"sqlite:///{database}", "SELECT customer, minute, total FROM turnover")
    by_minute = windowed(60, turnover, time="at", key="customer")
    harrow.verify_pipeline(orders, sums, guarantee="exactly-once", record_id=window_of, relation=by_minute)
