"""The leader is paused for a moment that a broker's session survives: reports are late, and nothing is wrong."""

from __future__ import annotations

from harrow import Harrow, leader, pause
from sends_again import right, wrong
from stage import orders_while
from twins import PlaceOrders, twins


@twins(wrong.place_orders, right.place_orders, finds={"duplicate": [...]})
def test_every_order_is_placed_once(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(pause(leader(orders, 0), seconds=0.8)) as chaos:
        placed = place_orders(harrow.bootstrap_servers, orders_while(lambda: chaos.running))
    harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)
