"""Failures of brokers in an order that a test decides: every fault is directed, so nothing depends on timing.

The high watermark of a follower is always one fetch behind (the table of article 004), and a follower that cannot reach
its new leader has truncated and has not fetched yet.
"""

from __future__ import annotations

from brokers_by_hand import PlacedTopic
from harrow import Harrow
from harrow.harness.checks import Verdict
from harrow.harness.errors import VerdictError

LAGGING_FOLLOWERS: dict[str, object] = {
    "replica.fetch.wait.max.ms": 4_000,  # a follower gets the second fetch response only with the next record
    "replica.lag.time.max.ms": 60_000,
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "harrow.trace.hw.interval.ms": 0,
    "min.insync.replicas": 1,
}
"""Settings of a cluster whose followers get the second fetch response only with the next record."""


def judge(harrow: Harrow) -> Verdict:
    """Returns the verdict, valid or not."""
    try:
        return harrow.verify("orders", guarantee="no-loss")
    except VerdictError as found:
        return found.verdict


def acknowledged(orders: PlacedTopic, node: int, value: str, *, acks: int = -1) -> None:
    answer = orders.produce(node, value, acks=acks)
    assert answer.error_code == 0, answer


def cut_off(orders: PlacedTopic, node: int, leader: int) -> None:
    """Isolates `node` from `leader`."""
    orders.cluster.control(node, "links.block", peers=[f"broker {leader}"], direction="both")


def fast_double_failure(orders: PlacedTopic, *, truncates_to_the_high_watermark: bool) -> tuple[int, int, int]:
    """m1 is committed and acknowledged; A dies, B leads, C follows B but fetches nothing; B dies, C leads."""
    a, b, c = orders.nodes()
    acknowledged(orders, a, "m0")
    acknowledged(orders, a, "m1")
    assert orders.seen(a).hw == 2
    assert [(replica.leo, replica.hw) for replica in (orders.seen(b), orders.seen(c))] == [(2, 1), (2, 1)]
    orders.await_checkpoint(a, 2)
    cut_off(orders, c, b)
    orders.cluster.brokers[a].kill()
    orders.await_state(leader=b, isr=(b, c), at_broker=c)
    if truncates_to_the_high_watermark:
        orders.await_ends(leo={c: 1})
    orders.cluster.brokers[b].kill()
    orders.await_state(leader=c, isr=(c,))
    orders.cluster.control(c, "links.heal", mode="reset")
    return a, b, c


def start_again(orders: PlacedTopic, *nodes: int) -> None:
    """Starts the dead brokers one after another, each until it is in sync."""
    for node in nodes:
        orders.cluster.brokers[node].start()
    orders.cluster.await_full_isr(30)
