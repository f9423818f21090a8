"""A response of the leader is lost after the order is in the log: the client sends the order again."""

from __future__ import annotations

from harrow import Harrow, leader, lose_response
from no_idempotence import right, wrong
from stage import orders_while
from twins import PlaceOrders, twins


@twins(wrong.place_orders, right.place_orders, finds={"duplicate": [...]})
def test_every_order_is_placed_once(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(lose_response("Produce", nth=3, target=leader(orders, 0))) as chaos:
        placed = place_orders(harrow.bootstrap_servers, orders_while(lambda: chaos.running))
    harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)
