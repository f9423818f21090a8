"""The leader refuses one of five orders in flight: the client sends it again, behind the other four."""

from __future__ import annotations

from harrow import Harrow, leader, refuse_request
from several_in_flight import right, wrong
from stage import orders_while
from twins import PlaceOrders, twins


@twins(wrong.place_orders, right.place_orders, finds={"out-of-order": [...]})
def test_orders_of_a_customer_stay_in_order(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders")
    refused = refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=2, target=leader(orders, 0))
    # six times: a refusal swaps nothing when it meets the last of five orders
    with harrow.chaos(*[refused] * 6) as chaos:
        placed = place_orders(harrow.bootstrap_servers, orders_while(lambda: chaos.running, burst=5))
    harrow.verify(orders, guarantee="ordered", record_id="order", expected=placed)
