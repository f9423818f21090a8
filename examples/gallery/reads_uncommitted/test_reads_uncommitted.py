"""The shop aborts a transaction with five orders."""

from __future__ import annotations

from functools import partial

from harrow import Harrow, mapped
from reads_uncommitted import right, wrong
from shop import bill_of, new_order
from stage import Calls, Running, place_in_transactions, until
from twins import BillOrders, twins


@twins(wrong.bill_orders, right.bill_orders, finds={"unexpected-output": range(10, 15)})
def test_only_placed_orders_are_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    servers, make_bill = harrow.bootstrap_servers, Calls(bill_of)
    ordered = [new_order(number) for number in range(20)]
    place_in_transactions(servers, [(ordered[:10], True), (ordered[10:15], False), (ordered[15:], True)])
    with Running(partial(bill_orders, servers, make_bill)):
        until(lambda: make_bill.calls[19], "the service has received the last order")
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
