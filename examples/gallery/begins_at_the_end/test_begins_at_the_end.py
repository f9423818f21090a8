"""Orders arrive before the group has committed anything: at the first start, or in a rebalance soon after it."""

from __future__ import annotations

from functools import partial
from itertools import count

from begins_at_the_end import right, wrong
from harrow import Harrow, mapped
from shop import bill_of, new_order
from stage import Running, caught_up, place, until
from twins import BillOrders, twins


@twins(
    wrong.bill_orders,
    right.bill_orders,
    finds={"missing-output": [*range(10), ...], "commit-before-output": [*range(10), ...]},
)
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    servers = harrow.bootstrap_servers
    new_orders = map(new_order, count())
    place(servers, [next(new_orders) for _ in range(10)])
    with Running(partial(bill_orders, servers, bill_of)):
        # Orders keep arriving until the new instance has committed the last of them.
        until(
            lambda: caught_up(harrow, "billing", orders) or not place(servers, [next(new_orders)]), "all is committed"
        )
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
