"""The service crashes while it makes a bill, and its supervisor starts it again."""

from __future__ import annotations

from functools import partial

import pytest
from harrow import Harrow, mapped
from share_accepts_too_early import right, wrong
from shop import bill_of, new_order
from stage import SHARE_GROUPS, Calls, Running, begin_at_the_earliest_order, crashing, place, until
from twins import BillOrders, twins


@pytest.mark.harrow(config=SHARE_GROUPS)
@twins(wrong.bill_orders, right.bill_orders, finds={"missing-output": [4, ...]})
def test_every_order_is_billed(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    servers = harrow.bootstrap_servers
    begin_at_the_earliest_order(servers, "billing")
    place(servers, map(new_order, range(10)))
    make_bill = Calls(crashing(bill_of, at_order=4))
    with Running(partial(bill_orders, servers, make_bill)) as service:
        until(lambda: service.restarts, "the service has crashed")
        place(servers, [new_order(10)])
        until(lambda: make_bill.calls[10], "the last order has a bill")
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=mapped(bill_of))
