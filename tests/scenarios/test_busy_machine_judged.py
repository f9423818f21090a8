"""A verdict explains duplicates of a run without a fault: a broker did not advance, and left the ISR (C4, L6)."""

from __future__ import annotations

import pytest
from harrow import Harrow
from harrow.harness.errors import VerdictError
from placed_topics import two_replicas
from topics_and_traces import trace_events
from waiting import until

SILENT = {"zookeeper.session.timeout.ms": 30_000, "min.insync.replicas": 2}


@pytest.mark.harrow(brokers=3, config=SILENT)
def test_duplicates_after_a_follower_stood_still_are_explained_without_a_fault(harrow: Harrow) -> None:
    orders = two_replicas(harrow, "orders")
    producer = harrow.producer(acks="all", enable_idempotence=False, linger_ms=0, retry_backoff_ms=200)
    for number in range(20):
        producer.produce("orders", f"before {number}", partition=0)
    assert producer.flush(30) == 0
    follower = harrow.cluster.brokers[orders.follower]
    follower.pause()  # not a fault of the run: as a machine that does not run it
    for number in range(20):
        producer.produce("orders", f"meanwhile {number}", partition=0)
    producer.poll(0)

    def left() -> bool:
        rows = trace_events(harrow.cluster, orders.leader, "partition.isr")
        return any(row["topic"] == "orders" and row["cause"] == "shrink" for row in rows)

    until(left)
    follower.resume()
    assert producer.flush(30) == 0
    with pytest.raises(VerdictError) as found:
        harrow.verify("orders", guarantee="exactly-once")
    verdict = found.value.verdict
    assert verdict.anomaly_counts["duplicate"] >= 1
    node = orders.follower
    why = (
        f"broker {node} left the ISR of orders-0 at ",
        " although no fault was active: the machine was too busy, or something other than Harrow stopped processes",
        f"(the process of broker {node} did not advance for ",
    )
    assert any(all(part in note for part in why) for note in verdict.notes), verdict.notes
    refused = "with NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    texts = verdict.causes["duplicate"]
    assert any(all(part in text for part in (*why, refused)) for text in texts), texts
