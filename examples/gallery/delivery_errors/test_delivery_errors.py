"""The leader is paused for longer than an order may take: the client gives up, and reports that to its caller."""

from __future__ import annotations

from delivery_errors import right, wrong
from harrow import Harrow, leader, pause
from stage import orders_while
from twins import PlaceOrders, twins


@twins(wrong.place_orders, right.place_orders, finds={"missing": [...]})
def test_no_placed_order_is_lost(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(pause(leader(orders, 0), seconds=1)) as chaos:
        placed = place_orders(harrow.bootstrap_servers, orders_while(lambda: chaos.running))
    harrow.verify(orders, guarantee="no-loss", record_id="order", expected=placed)
