"""A second instance is started, and the orders go on arriving in the partition of the first one."""

from __future__ import annotations

from functools import partial

from harrow import Harrow, mapped
from one_transactional_id import right, wrong
from shop import bill_of, new_order
from stage import Calls, Running, caught_up, place, until
from twins import BillOrders, twins

TRIES = 10


@twins(wrong.bill_orders, right.bill_orders, finds={"missing-output": range(10, 20)})
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders", partitions=2), harrow.topic("bills")
    servers, make_bill = harrow.bootstrap_servers, Calls(bill_of)
    place(servers, map(new_order, range(10)))
    with Running(partial(bill_orders, servers, "old", make_bill)):
        harrow.await_caught_up("billing", orders)
        with Running(partial(bill_orders, servers, "new", bill_of)):
            harrow.await_assigned("billing", members=2)
            place(servers, map(new_order, range(10, 20)))  # all keys are in partition 1
            until(
                lambda: caught_up(harrow, "billing", orders) or make_bill.calls[10] > TRIES,
                "the orders are billed, or one of them cannot be billed",
            )
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
