"""The tax service fails once, for one order in the middle of a batch."""

from __future__ import annotations

from drops_the_batch import right, wrong
from harrow import Harrow, mapped
from shop import TaxServiceError, bill_of, new_order
from stage import failing_once, place, run_until_caught_up
from twins import BillOrders, twins


@twins(
    wrong.bill_orders, right.bill_orders, finds={"missing-output": range(4, 10), "commit-before-output": range(4, 10)}
)
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    place(harrow.bootstrap_servers, map(new_order, range(10)))
    make_bill = failing_once(bill_of, TaxServiceError, at_order=4)
    run_until_caught_up(harrow, bill_orders, make_bill, group="billing")
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
