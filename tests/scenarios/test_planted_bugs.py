"""Bugs of the zoo on real brokers: a directed schedule loses a record with the bug, and nothing without it (M1).

Each test runs twice, on brokers with the planted bug and on unplanted brokers, with the same faults in the same order.
"""

from __future__ import annotations

import pytest
from brokers_by_hand import PlacedTopic, besides_the_controller, place
from directed_failures import LAGGING_FOLLOWERS, acknowledged, cut_off, fast_double_failure, judge, start_again
from harrow import Harrow
from long_runs import long_run
from waiting import until


def with_and_without(module: str, *, brokers: int) -> pytest.MarkDecorator:
    """Runs the test with the bug planted, and without it."""
    name = f"harrow.faults.zoo.{module}"
    config = dict(LAGGING_FOLLOWERS)
    marks = [
        pytest.param(plants, marks=[pytest.mark.harrow(brokers=brokers, config=config, plant=plants), *more], id=label)
        for label, plants, more in ((module, (name,), ()), ("unplanted", (), [long_run]))
    ]
    return pytest.mark.parametrize("plants", marks)


def check_verdict(harrow: Harrow, plants: tuple[str, ...], anomalies: set[str]) -> None:
    verdict = judge(harrow)
    assert [bug.partition(":")[0] for bug in verdict.planted] == list(plants)
    if plants:
        assert verdict.anomaly_names() == anomalies, verdict
        assert str(verdict).startswith(f"PLANTED BUG {plants[0]}: ")
    else:
        assert verdict.valid, verdict


@pytest.fixture
def orders(harrow: Harrow, plants: tuple[str, ...]) -> PlacedTopic:
    """A topic with a replica on each broker except the controller; the first replica leads."""
    assert [plant.module for plant in harrow.cluster.plants] == list(plants)
    return place(harrow.cluster, "orders", *besides_the_controller(harrow.cluster))


@with_and_without("kip_101", brokers=4)
def test_kip_101_loses_a_committed_record_after_two_leader_failures(
    harrow: Harrow, orders: PlacedTopic, plants: tuple[str, ...]
) -> None:
    a, b, _c = fast_double_failure(orders, truncates_to_the_high_watermark=bool(plants))
    start_again(orders, a, b)
    check_verdict(harrow, plants, {"lost-write", "incomplete-leader"})


@with_and_without("kafka_7128", brokers=5)
def test_kafka_7128_loses_a_committed_record_when_a_slow_follower_joins_and_is_elected(
    harrow: Harrow, orders: PlacedTopic, plants: tuple[str, ...]
) -> None:
    """C lacks m1, which A, B and D have. B is elected with a high watermark below m1; C fetches from B; B dies."""
    a, b, c, d = orders.nodes()
    cluster = orders.cluster
    acknowledged(orders, a, "m0")
    cluster.brokers[c].kill()
    orders.await_state(leader=a, isr=(a, b, d))
    acknowledged(orders, a, "m1")
    assert [(orders.seen(node).leo, orders.seen(node).hw) for node in (b, d)] == [(2, 1), (2, 1)]
    cut_off(orders, a, c)
    cluster.brokers[c].start()
    cut_off(orders, d, b)  # D stays in the ISR and does not fetch: the high watermark of B stays at 1
    # B receives the fetches of C; its responses leave ten seconds later
    cluster.control(b, "links.slow", peers=[f"broker {c}"], delay_ms=10_000)
    cluster.brokers[a].kill()
    until(lambda: orders.seen(b).leader == b, "B leads")
    until(lambda: fetched_from(orders, b, c), "B received a fetch of C")
    orders.await_state(leader=b, isr=(b, c, d) if plants else (b, d))
    assert orders.seen(b).hw == 1
    cluster.brokers[b].kill()
    elected = c if plants else d
    until(lambda: orders.seen(elected).leader == elected, f"broker {elected} leads")
    for node in (c, d):
        cluster.control(node, "links.heal", mode="reset")
    start_again(orders, a, b)
    check_verdict(harrow, plants, {"lost-write", "incomplete-leader"})
    lost = {orders.seen(node).leo for node in (a, b, c, d)}
    assert lost == ({1} if plants else {2})


def fetched_from(orders: PlacedTopic, leader: int, follower: int) -> bool:
    """True when the leader received a fetch of the follower at offset 1, by the leader's trace."""
    events = orders.events(leader, "partition.follower_leo")
    return any((row["node"], row["leo"]) == (follower, 1) for row in events)
