"""The taxes of one order are not known, however often the service asks for them."""

from __future__ import annotations

from functools import partial

import pytest
from harrow import Harrow
from share_releases_poison import right, wrong
from shop import Bill, Order, TaxServiceError, bill_of, new_order
from stage import SHARE_GROUPS, Calls, Running, begin_at_the_earliest_order, place, until
from twins import BillOrders, twins

LIMIT = 2


@pytest.mark.harrow(config={**SHARE_GROUPS, "group.share.delivery.count.limit": LIMIT})
@twins(wrong.bill_orders, right.bill_orders, finds={"given-up": []})
def test_every_order_is_billed_or_kept(harrow: Harrow, bill_orders: BillOrders) -> None:
    orders = harrow.topic("orders")
    harrow.topic("bills")
    harrow.topic("dead-orders")
    servers, asked = harrow.bootstrap_servers, Calls(dict)

    def make_bill(order: Order) -> Bill:
        asked(order)
        if order["order"] == 4:
            raise TaxServiceError
        return bill_of(order)

    begin_at_the_earliest_order(servers, "billing")
    placed = place(servers, map(new_order, range(10)))
    with Running(partial(bill_orders, servers, make_bill)):
        until(lambda: len(asked.calls) == 10, "each order was seen")
        deliveries = LIMIT if bill_orders is wrong.bill_orders else 1
        until(lambda: asked.calls[4] == deliveries, "the order is not delivered again")
        placed += place(servers, [new_order(10)])
        until(lambda: asked.calls[10], "the last order was seen")
    harrow.verify(orders, guarantee="at-least-once", record_id="order", expected=placed, consumed_by="billing")
