"""acks=0 and acks=1 lose records by design, and the verdict reports it so (H1, H2).

The faults are directed: the loss happens in every run.
`test_guarantees_break.py` and `test_guarantees_hold.py` have the other scenarios of this part.
"""

from __future__ import annotations

import pytest
from brokers_by_hand import PlacedTopic, besides_the_controller, place
from harrow import Harrow
from harrow.harness.errors import VerdictError
from waiting import until

PATIENT_ISR = {"replica.lag.time.max.ms": 60_000, "min.insync.replicas": 1}


@pytest.fixture
def orders(harrow: Harrow) -> PlacedTopic:
    """A topic on all brokers except the controller."""
    return place(harrow.cluster, "orders", *besides_the_controller(harrow.cluster))


def fail_over(orders: PlacedTopic, leader: int, follower: int) -> None:
    """Kills the leader, waits until the follower leads, and restarts the old leader until it is in sync."""
    orders.cluster.brokers[leader].kill()
    orders.await_state(leader=follower, isr=(follower,))
    orders.cluster.brokers[leader].start()
    orders.cluster.await_full_isr(30)


@pytest.mark.harrow(brokers=3, config=PATIENT_ISR)
def test_killing_a_paused_leader_with_acks_0_loses_unread_records(
    harrow: Harrow, orders: PlacedTopic
) -> None:
    """H1: the client gets no response and assumes success; the verdict names the loss and reports it as allowed."""
    leader, follower = orders.nodes()
    producer = harrow.producer(acks=0, enable_idempotence=False, message_timeout_ms=30_000)
    for number in range(20):
        producer.produce("orders", f"before {number}", key="k", partition=0)
    assert producer.flush(30) == 0
    orders.await_ends(leo={leader: 20, follower: 20})
    orders.cluster.brokers[leader].pause()
    for number in range(30):
        producer.produce("orders", f"unread {number}", key="k", partition=0)
    assert producer.flush(30) == 0, "with acks=0 the client counts a sent record as delivered"
    fail_over(orders, leader, follower)
    verdict = harrow.verify("orders")
    assert verdict.guarantees == ("best-effort",), "derived from acks=0"
    assert verdict.anomaly_counts["lost-write"] == 30
    assert verdict.operation_counts["acknowledged"] == 50
    assert any("lost-write" in note for note in verdict.notes), verdict.notes
    with pytest.raises(VerdictError) as found:
        harrow.verify("orders", guarantee="no-loss")
    assert found.value.verdict.anomaly_names() == {"lost-write"}


@pytest.mark.harrow(brokers=3, config=PATIENT_ISR)
def test_killing_an_isolated_leader_with_acks_1_loses_its_records(
    harrow: Harrow, orders: PlacedTopic
) -> None:
    """H2: the leader acknowledges, and is killed before its follower has fetched."""
    leader, follower = orders.nodes()
    with orders.raw(leader) as raw:
        for number in range(20):
            assert raw.produce("orders", 0, [f"before {number}"], acks=1).error_code == 0
        orders.await_ends(leo={leader: 20, follower: 20})
        peer = [f"broker {leader}"]
        orders.cluster.control(follower, "links.block", peers=peer, direction="both")
        for number in range(30):
            assert raw.produce("orders", 0, [f"alone {number}"], acks=1).error_code == 0
    orders.cluster.brokers[leader].kill()
    orders.await_state(leader=follower, isr=(follower,))
    orders.cluster.control(follower, "links.heal", mode="reset")
    orders.cluster.brokers[leader].start()
    orders.cluster.await_full_isr(30)
    assert orders.seen(leader).leo == 20, "it truncated to the new leader's log"
    with pytest.raises(VerdictError) as found:
        harrow.verify("orders", guarantee="no-loss")
    assert found.value.verdict.anomaly_names() == {"lost-write"}
    assert found.value.verdict.anomaly_counts["lost-write"] == 30
    until(lambda: orders.events(leader, "partition.truncated"), "the truncation is in the trace")
