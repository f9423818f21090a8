"""An instance hangs in the middle of a batch; another one takes its partition; then the first one goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harrow import Harrow, folded, table
from shop import new_order
from stage import Hang, Running, place, run_until_caught_up
from twins import twins
from zombie import right, wrong


def last_order(_: object, order: Any) -> dict[str, Any]:
    return {"customer": order["customer"], "order": order["order"]}


@twins(
    wrong.keep_last_orders, right.keep_last_orders, finds={"wrong-output": ["customer-0", "customer-1", "customer-2"]}
)
def test_the_table_has_the_last_orders(harrow: Harrow, keep_last_orders: Callable[..., None], tmp_path: Path) -> None:
    orders, database = harrow.topic("orders"), str(tmp_path / "last.sqlite")
    servers = harrow.bootstrap_servers
    place(servers, map(new_order, range(10)))
    with Hang(at_order=4) as hang, Running(partial(keep_last_orders, servers, database, hang)):
        hang.await_begin()
        place(servers, map(new_order, range(10, 20)))
        run_until_caught_up(harrow, keep_last_orders, database, dict, group="last-orders")
        hang.end()
    last = table(f"sqlite:///{database}", 'SELECT customer, "order" FROM last')
    by_customer = folded(last_order, key="customer")
    harrow.verify_pipeline(orders, last, guarantee="exactly-once", record_id="customer", relation=by_customer)
