"""An ISR that the leader learns by LeaderAndIsr, not by its own write, has the same effect (C1, C4, C8).

Its own write may have been taken though its answer never came; the controller then tells the state under
the epoch that the leader has. Regression: the new ISR was taken in, but the HW was not tried and nothing
was traced, so that an acks=all produce waited for a follower that was out until somebody else fetched.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition

from .simulation import Simulation

TP = TopicPartition("orders", 0)


def leader_that_waits(**config: object) -> tuple[Simulation, list[Any]]:
    """Broker 1 leads alone and cannot write its ISR of one; a produce waits for the dead."""
    sim = Simulation(3, seed=1, config={"replica.lag.time.max.ms": 200, **config})
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(50)
    sim.registry.cut_off.add(1)
    for node in (2, 3):
        sim.brokers[node].kill()
    answers = sim.produce(1, TP, [b"a"], timeout_ms=60_000)
    sim.loop.run_for(2_000)
    assert not answers, "it waits: nobody knows whether the shrink was taken"
    assert sim.partition(1, TP).proposal is not None
    return sim, answers


def test_the_high_watermark_is_tried_and_what_waits_is_answered() -> None:
    sim, answers = leader_that_waits(**{"min.insync.replicas": 1})
    sim.ask(1, 4, 7, sim.order(TP, 1, isr=(1,), partition_epoch=1))
    assert [answer.error for answer in answers] == [ErrorCode.none]
    partition = sim.partition(1, TP)
    assert (partition.isr, partition.version, partition.proposal) == ((1,), 1, None)
    trace = sim.brokers[1].host.trace
    assert [(row["isr"], row["cause"]) for row in trace.named("partition.isr")] == [
        ([1], "leader-and-isr")
    ]
    assert trace.named("partition.hw")[-1]["cause"] == "isr"


def test_an_older_state_changes_nothing() -> None:
    sim, answers = leader_that_waits(**{"min.insync.replicas": 1})
    sim.ask(1, 4, 7, sim.order(TP, 1, isr=(1,), partition_epoch=0))
    assert not answers
    assert sim.partition(1, TP).isr == (1, 2, 3)
    assert sim.brokers[1].host.trace.named("partition.isr") == []


def test_too_small_an_isr_fails_what_waits_after_the_append() -> None:
    sim, answers = leader_that_waits(**{"min.insync.replicas": 2})
    sim.ask(1, 4, 7, sim.order(TP, 1, isr=(1,), partition_epoch=1))
    assert [answer.error for answer in answers] == [ErrorCode.not_enough_replicas_after_append]
