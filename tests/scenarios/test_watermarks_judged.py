"""What leaders say of their high watermarks, on brokers with a planted bug and without it (L2, KIP-207).

Every fault is directed, so nothing depends on timing.
"""

from __future__ import annotations

from typing import Any

import pytest
from brokers_by_hand import PlacedTopic, besides_the_controller, place
from directed_failures import LAGGING_FOLLOWERS, acknowledged, cut_off, judge, start_again
from harrow import Harrow
from harrow.cluster.errors import ErrorCode

LATEST = -1


def planted(module: str) -> pytest.MarkDecorator:
    """Runs the test with the bug planted, and without it."""
    marks = [
        pytest.param(
            bool(plants), marks=pytest.mark.harrow(brokers=4, config=dict(LAGGING_FOLLOWERS), plant=plants), id=label
        )
        for label, plants in ((module, (module,)), ("unplanted", ()))
    ]
    return pytest.mark.parametrize("is_planted", marks)


@pytest.fixture
def orders(harrow: Harrow) -> PlacedTopic:
    """A topic with a replica on each broker except the controller; the first replica leads."""
    return place(harrow.cluster, "orders", *besides_the_controller(harrow.cluster))


def listed(orders: PlacedTopic, node: int) -> Any:
    with orders.raw(node) as raw:
        return raw.list_offset(orders.topic, 0, LATEST)


def fetched_high_watermark(orders: PlacedTopic, node: int) -> int:
    with orders.raw(node) as raw:
        return int(raw.fetch(orders.topic, 0, 0).high_watermark)


@planted("planted_listings")
def test_a_new_leader_lists_no_offset_that_is_behind_what_the_old_leader_said(
    harrow: Harrow, orders: PlacedTopic, is_planted: bool
) -> None:
    a, b, c = orders.nodes()
    for value in ("m0", "m1"):
        acknowledged(orders, a, value)
    assert fetched_high_watermark(orders, a) == 2
    cut_off(orders, c, b)
    orders.cluster.brokers[a].kill()
    orders.await_state(leader=b, isr=(b, c), at_broker=b)
    answer = listed(orders, b)
    if is_planted:
        assert (answer.error_code, answer.offset) == (ErrorCode.none, 1)
    else:
        assert answer.error_code == ErrorCode.offset_not_available
    orders.cluster.control(c, "links.heal", mode="reset")
    orders.await_ends(hw={b: 2})
    assert listed(orders, b).offset == 2
    start_again(orders, a)
    verdict = judge(harrow)
    if not is_planted:
        assert verdict.valid, verdict
        return
    assert verdict.anomaly_names() == {"end-offset-regression"}, verdict
    shown = str(verdict)
    assert f"broker {b}, leader in leader epoch 1, said the high watermark 1 in a ListOffsets response" in shown
    assert f"after broker {a}, leader in leader epoch 0, had said 2" in shown


@planted("planted_watermarks")
def test_a_leader_says_no_high_watermark_that_is_behind_what_it_said_before(
    harrow: Harrow, orders: PlacedTopic, is_planted: bool
) -> None:
    a, b, c = orders.nodes()
    acknowledged(orders, a, "m0")
    orders.cluster.brokers[b].kill()
    orders.await_state(leader=a, isr=(a, c))
    acknowledged(orders, a, "m1")
    assert fetched_high_watermark(orders, a) == 2
    assert listed(orders, a).offset == (0 if is_planted else 2)
    start_again(orders, b)
    verdict = judge(harrow)
    if not is_planted:
        assert verdict.valid, verdict
        return
    assert "high-watermark-regression" in verdict.anomaly_names(), verdict
    assert "said the high watermark 0 in a ListOffsets response, after it had said 2" in str(verdict)
