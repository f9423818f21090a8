"""The service crashes in the middle of a batch, and its supervisor starts it again."""

from __future__ import annotations

from auto_commit import right, wrong
from harrow import Harrow, mapped
from shop import bill_of, new_order
from stage import crashing, place, run_until_caught_up
from twins import BillOrders, twins


@twins(
    wrong.bill_orders,
    right.bill_orders,
    finds={"missing-output": range(4, 10), "commit-before-output": [*range(4, 10), ...]},
)
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    place(harrow.bootstrap_servers, map(new_order, range(10)))
    make_bill = crashing(bill_of, at_order=4)
    run_until_caught_up(harrow, bill_orders, make_bill, group="billing")
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
