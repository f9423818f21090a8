"""The tax service fails once for one order, and always for another one."""

from __future__ import annotations

from gives_up_on_retry import right, wrong
from harrow import Harrow
from shop import Bill, Order, TaxServiceError, bill_of, new_order
from stage import Running, failing_once, place
from twins import BillOrders, twins


def untaxed(order: Order) -> Bill:
    if order["order"] == 7:
        raise TaxServiceError("no tax rate")
    return bill_of(order)


@twins(wrong.bill_orders, right.bill_orders, finds={"missing-output": [7]})
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    retries, servers = harrow.topic("orders.retry"), harrow.bootstrap_servers
    place(servers, map(new_order, range(10)))
    make_bill = failing_once(untaxed, TaxServiceError, at_order=4)
    with Running(lambda stop: bill_orders(servers, make_bill, stop)):
        harrow.await_caught_up("billing", orders)
        harrow.await_caught_up("billing", retries)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", retry_topics=retries)
