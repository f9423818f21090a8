"""The service crashes before it commits a batch of which it has written some bills."""

from __future__ import annotations

from pathlib import Path

from harrow import Harrow, mapped, table
from shop import bill_of, new_order
from stage import crashing, place, run_until_caught_up
from twins import BillOrders, twins
from works_twice import right, wrong


@twins(wrong.bill_orders, right.bill_orders, finds={"duplicate-output": range(4)})
def test_every_order_is_billed_once(harrow: Harrow, bill_orders: BillOrders, tmp_path: Path) -> None:
    orders, database = harrow.topic("orders"), str(tmp_path / "bills.sqlite")
    place(harrow.bootstrap_servers, map(new_order, range(10)))
    make_bill = crashing(bill_of, at_order=4)
    run_until_caught_up(harrow, bill_orders, database, make_bill, group="billing")
    bills = table(f"sqlite:///{database}", 'SELECT "order", customer, total FROM bills')
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
