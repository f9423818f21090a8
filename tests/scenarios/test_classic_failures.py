"""The failures of seeds 002 and 004 and of KIP-279, reproduced by directed faults by truncation strategy (C6, C7).

Replicas A, B, C are on brokers that are not the controller. Every election is clean and every fault is directed, so
nothing depends on timing: the high watermark of a follower is always one fetch behind (seed 004's table), and a
follower that cannot reach its new leader has truncated and not fetched yet.
"""

from __future__ import annotations

import pytest
from brokers_by_hand import PlacedTopic, besides_the_controller, place
from directed_failures import LAGGING_FOLLOWERS, acknowledged, cut_off, fast_double_failure, judge, start_again
from harrow import Harrow
from long_runs import LONG


def by_rule(*rules: str) -> pytest.MarkDecorator:
    """Runs the test for each rule, on brokers that all use it."""
    marks = [
        pytest.param(
            rule, marks=pytest.mark.harrow(brokers=4, config={**LAGGING_FOLLOWERS, "harrow.replica.truncation": rule})
        )
        for rule in rules
    ]
    return pytest.mark.parametrize("rule", marks)


@pytest.fixture
def orders(harrow: Harrow, rule: str) -> PlacedTopic:
    """A topic on three of four brokers, the first broker leads; the fourth broker is the controller."""
    return place(harrow.cluster, "orders", *besides_the_controller(harrow.cluster))


@by_rule("high-watermark", "kip-320")
def test_truncating_to_the_high_watermark_loses_a_committed_record(
    harrow: Harrow, orders: PlacedTopic, rule: str
) -> None:
    a, b, c = fast_double_failure(orders, truncates_to_the_high_watermark=rule == "high-watermark")
    start_again(orders, a, b)
    verdict = judge(harrow)
    if rule != "high-watermark":
        assert verdict.valid, verdict
        assert orders.seen(c).leo == 2
        return
    assert verdict.anomaly_names() == {"lost-write", "incomplete-leader"}, verdict
    assert {orders.seen(node).leo for node in (a, b, c)} == {1}, "every log must have lost the record"
    causes = {node: cuts(orders, node) for node in (a, c)}
    assert causes == {a: [(2, 1, "high-watermark: out of range")], c: [(2, 1, "high-watermark: became follower")]}


@by_rule("high-watermark", "kip-101")
def test_logs_diverge_when_the_new_leader_appends_before_the_old_leader_returns(
    harrow: Harrow, orders: PlacedTopic, rule: str
) -> None:
    a, b, c = fast_double_failure(orders, truncates_to_the_high_watermark=rule == "high-watermark")
    acknowledged(orders, c, "n1")
    start_again(orders, a, b)
    acknowledged(orders, c, "n2")
    verdict = judge(harrow)
    if rule != "high-watermark":
        assert verdict.valid, verdict
        assert orders.seen(c).leo == 4
        return
    assert verdict.anomaly_names() >= {"lost-write", "replica-divergence"}, verdict
    assert {orders.seen(node).leo for node in (a, b, c)} == {3}
    assert cuts(orders, a) == [], "its high watermark equals the leader's LEO: nothing to truncate"


@by_rule("kip-101", *(() if not LONG else ("kip-279",)), "kip-320")
def test_a_fast_double_election_diverges_unless_the_leader_returns_its_epoch(
    harrow: Harrow, orders: PlacedTopic, rule: str
) -> None:
    """KIP-279: only B has records of epoch 1; the leader of epoch 2 cannot know where epoch 1 ends."""
    a, b, c = orders.nodes()
    acknowledged(orders, a, "m0")
    cut_off(orders, b, a)
    late = [orders.produce(a, value, timeout_ms=1).error_code for value in ("x1", "x2")]
    assert late == [7, 7], "REQUEST_TIMED_OUT: B is in the ISR and does not have the records"
    orders.await_ends(leo={a: 3, b: 1, c: 3})
    cut_off(orders, c, b)
    orders.cluster.brokers[a].kill()
    orders.await_state(leader=b, isr=(b, c), at_broker=c)
    late = [orders.produce(b, value, timeout_ms=1).error_code for value in ("y1", "y2")]
    assert late == [7, 7], "REQUEST_TIMED_OUT: C is in the ISR and does not have the records"
    orders.cluster.brokers[b].kill()
    orders.await_state(leader=c, isr=(c,))
    acknowledged(orders, c, "z")
    orders.cluster.control(c, "links.heal", mode="reset")
    start_again(orders, a, b)
    verdict = judge(harrow)
    assert {orders.seen(node).leo for node in (a, b, c)} == {4}
    if rule == "kip-101":
        assert "replica-divergence" in verdict.anomaly_names(), verdict
        assert cuts(orders, b) == [], "epoch 2 begins at the end of its own log"
        return
    assert verdict.valid, verdict
    assert [(before, end) for before, end, _ in cuts(orders, b)] == [(3, 1)]


def cuts(orders: PlacedTopic, node: int) -> list[tuple[int, int, str]]:
    """Returns (from, to, cause) of every truncation on `node`."""
    events = orders.events(node, "partition.truncated")
    return [(row["from"], row["to"], row["cause"]) for row in events]
