"""An instance works on an order for longer than its lock lasts; another instance gets the order."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest
from harrow import Harrow, expire_lock, mapped, table
from share_works_twice import right, wrong
from shop import bill_of, new_order
from stage import SHARE_GROUPS, Calls, Hang, Running, begin_at_the_earliest_order, place, until
from twins import BillOrders, twins

NUMBERS = itertools.count(10)


def goes_on(servers: str, billed: Calls) -> int:
    """Place one more order; return how often order 4 has a bill of the other instance."""
    place(servers, [new_order(next(NUMBERS))])
    return billed.calls[4]


@pytest.mark.harrow(config=SHARE_GROUPS)
@twins(wrong.bill_orders, right.bill_orders, finds={"duplicate-output": [4, ...]})
def test_every_order_is_billed_once(harrow: Harrow, bill_orders: BillOrders, tmp_path: Path) -> None:
    orders, database = harrow.topic("orders"), str(tmp_path / "bills.sqlite")
    servers, billed = harrow.bootstrap_servers, Calls(bill_of)
    begin_at_the_earliest_order(servers, "billing")
    place(servers, map(new_order, range(10)))
    with Hang(at_order=4) as hang:
        slow = Calls(lambda order: bill_of(hang(order)))
        with Running(partial(bill_orders, servers, database, slow)):
            hang.await_begin()
            with Running(partial(bill_orders, servers, database, billed)):
                with harrow.chaos(expire_lock("billing")):
                    until(partial(goes_on, servers, billed), "another instance has the order")
                hang.end()
                until(lambda: slow.calls[4], "the first instance has billed it, too")
    bills = table(f"sqlite:///{database}", 'SELECT "order", customer, total FROM bills')
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
