"""No fault is needed: the verdict sees that the orders of one customer lie in several partitions."""

from __future__ import annotations

from harrow import Harrow
from random_partition import right, wrong
from shop import new_order
from twins import PlaceOrders, twins


@twins(wrong.place_orders, right.place_orders, finds={"split-key": ["customer-0", "customer-1", "customer-2"]})
def test_orders_of_a_customer_stay_in_order(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders", partitions=3)
    placed = place_orders(harrow.bootstrap_servers, map(new_order, range(60)))
    harrow.verify(orders, guarantee="ordered", record_id="order", expected=placed)
