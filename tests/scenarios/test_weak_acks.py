"""acks=0 and acks=1 lose records by design, and the verdict reports it so (H1, H2, M3).

The faults are directed: the loss happens in every run, on every backend.
`test_guarantees_break.py` and `test_guarantees_hold.py` have the other scenarios of this part.
"""

from __future__ import annotations

from typing import Any

import pytest
from harrow import Harrow
from harrow.harness.errors import VerdictError
from placed_topics import TwoReplicas, two_replicas

PATIENT_ISR: dict[str, object] = {
    "replica.lag.time.max.ms": 60_000,
    "min.insync.replicas": 1,
    "zookeeper.session.timeout.ms": 6_000,  # a follower that is paused for a moment stays in the ISR
}


@pytest.fixture
def orders(harrow: Harrow) -> TwoReplicas:
    """A topic on all brokers except the controller."""
    return two_replicas(harrow, "orders")


def fail_over(orders: TwoReplicas) -> None:
    """Wait until the follower of the killed leader leads, and restart the old leader until it is in sync."""
    orders.await_leader(orders.follower)
    orders.cluster.brokers[orders.leader].start()
    orders.cluster.await_full_isr(60)


def send(producer: Any, count: int, what: str) -> None:
    """Send records, and wait until the client counts them as delivered."""
    for number in range(count):
        producer.produce("orders", f"{what} {number}", key="k", partition=0)
    assert producer.flush(30) == 0, what


@pytest.mark.harrow(brokers=3, config=PATIENT_ISR)
def test_killing_a_paused_leader_with_acks_0_loses_unread_records(harrow: Harrow, orders: TwoReplicas) -> None:
    """H1: the client gets no response and assumes success; the verdict names the loss and reports it as allowed."""
    producer = harrow.producer(acks=0, enable_idempotence=False, message_timeout_ms=30_000)
    send(producer, 20, "before")
    orders.await_ends(20)
    orders.cluster.brokers[orders.leader].pause()
    send(producer, 30, "unread")
    orders.cluster.brokers[orders.leader].kill()
    fail_over(orders)
    verdict = harrow.verify("orders")
    assert verdict.guarantees == ("best-effort",), "derived from acks=0"
    assert verdict.anomaly_counts["lost-write"] == 30
    assert verdict.operation_counts["acknowledged"] == 50
    assert any("lost-write" in note for note in verdict.notes), verdict.notes
    with pytest.raises(VerdictError) as found:
        harrow.verify("orders", guarantee="no-loss")
    assert found.value.verdict.anomaly_names() == {"lost-write"}


@pytest.mark.harrow(brokers=3, config=PATIENT_ISR)
def test_killing_a_leader_with_acks_1_loses_what_its_paused_follower_has_not(
    harrow: Harrow, orders: TwoReplicas
) -> None:
    """H2: the leader acknowledges, and is killed before its follower has fetched."""
    producer = harrow.producer(acks=1, enable_idempotence=False, linger_ms=0)
    send(producer, 20, "before")
    orders.await_ends(20)
    follower = orders.cluster.brokers[orders.follower]
    follower.pause()
    for number in range(30):
        send(producer, 1, f"alone {number}")
    orders.cluster.brokers[orders.leader].kill()
    follower.resume()
    fail_over(orders)
    # a fetch that waited when the follower was paused may have its response, with the first record
    assert orders.end(orders.leader) in (20, 21), "it truncated to the new leader's log"
    with pytest.raises(VerdictError) as found:
        harrow.verify("orders", guarantee="no-loss")
    assert found.value.verdict.anomaly_names() == {"lost-write"}
    assert found.value.verdict.anomaly_counts["lost-write"] in (29, 30)
