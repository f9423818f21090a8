"""A second instance starts when the first one has written bills that it has not committed yet."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from forgets_at_revocation import right, wrong
from harrow import Harrow, mapped, table
from shop import bill_of, new_order
from stage import Calls, Running, place, until
from twins import BillOrders, twins


@twins(wrong.bill_orders, right.bill_orders, finds={"duplicate-output": range(10)})
def test_every_order_is_billed_once(harrow: Harrow, bill_orders: BillOrders, tmp_path: Path) -> None:
    orders, database = harrow.topic("orders"), str(tmp_path / "bills.sqlite")
    servers, make_bill = harrow.bootstrap_servers, Calls(bill_of)
    place(servers, map(new_order, range(10)))
    service = partial(bill_orders, servers, database, make_bill)
    with Running(service):
        until(lambda: make_bill.calls[9], "the service has billed every order")
        with Running(service):
            harrow.await_assigned("billing", members=2)
            place(servers, map(new_order, range(10, 20)))
            until(lambda: make_bill.calls[19], "the services have billed the later orders")
    bills = table(f"sqlite:///{database}", 'SELECT "order", customer, total FROM bills')
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
