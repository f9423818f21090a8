"""The service crashes when a transaction is committed, and its supervisor starts it again."""

from __future__ import annotations

from harrow import Harrow, mapped
from offsets_outside import right, wrong
from shop import bill_of, new_order
from stage import crashing, place, run_until_caught_up
from twins import BillOrders, twins


@twins(wrong.bill_orders, right.bill_orders, finds={"duplicate-output": [4]})
def test_every_order_is_billed_once(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    place(harrow.bootstrap_servers, map(new_order, range(10)))
    notify = crashing(bill_of, at_order=4)
    run_until_caught_up(harrow, bill_orders, notify, group="billing")
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
