"""The leader is isolated from its followers: with acks=1 it still acknowledges orders, and nobody else has them."""

from __future__ import annotations

import pytest
from acks_one import right, wrong
from harrow import Harrow, isolate, leader
from stage import orders_while
from twins import PlaceOrders, twins


@pytest.mark.harrow(config={"zookeeper.session.timeout.ms": 500})
@twins(
    wrong.place_orders,
    right.place_orders,
    finds={"missing": [...], "lost-write": [...]},
    also=["inconsistent-offsets", "duplicate"],
)
def test_no_placed_order_is_lost(harrow: Harrow, place_orders: PlaceOrders) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(isolate(leader(orders, 0), seconds=2.5, heals_by="reset")) as chaos:
        placed = place_orders(harrow.bootstrap_servers, orders_while(lambda: chaos.running))
    harrow.verify(orders, guarantee="no-loss", record_id="order", expected=placed)
