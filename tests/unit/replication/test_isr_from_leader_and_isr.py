"""An ISR that the leader receives by LeaderAndIsr has the same effect as an ISR that it wrote itself (C1, C4, C8).

The registry may have accepted the leader's own write although the response was lost; the controller then sends the
state under the epoch that the leader has. Regression: the leader stored the new ISR, but did not recompute the HW and
traced nothing, so that an acks=all produce waited for a follower outside the ISR until another follower fetched.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition

from .simulation import Simulation

TP = TopicPartition("orders", 0)


def leader_that_waits(**config: object) -> tuple[Simulation, list[Any]]:
    """Broker 1 leads alone and cannot write an ISR of itself alone; a produce waits for the killed followers."""
    sim = Simulation(3, seed=1, config={"replica.lag.time.max.ms": 200, **config})
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(50)
    sim.registry.unreachable_from.add(1)
    for node in (2, 3):
        sim.brokers[node].kill()
    results = sim.produce(1, TP, [b"a"], timeout_ms=60_000)
    sim.loop.run_for(2_000)
    assert not results, "the produce waits: the result of the shrink is unknown"
    assert sim.partition(1, TP).proposal is not None
    return sim, results


def test_smaller_isr_advances_the_high_watermark_and_completes_produces() -> None:
    sim, results = leader_that_waits(**{"min.insync.replicas": 1})
    sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, isr=(1,), partition_epoch=1))
    assert [result.error for result in results] == [ErrorCode.none]
    partition = sim.partition(1, TP)
    assert (partition.isr, partition.version, partition.proposal) == ((1,), 1, None)
    traced = sim.brokers[1].traced
    assert [(row["isr"], row["cause"]) for row in traced("partition.isr")] == [([1], "leader-and-isr")]
    assert traced("partition.hw")[-1]["cause"] == "isr"


def test_older_partition_epoch_changes_nothing() -> None:
    sim, results = leader_that_waits(**{"min.insync.replicas": 1})
    sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, isr=(1,), partition_epoch=0))
    assert not results
    assert sim.partition(1, TP).isr == (1, 2, 3)
    assert sim.brokers[1].traced("partition.isr") == []


def test_isr_below_the_minimum_fails_waiting_produces() -> None:
    sim, results = leader_that_waits(**{"min.insync.replicas": 2})
    sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, isr=(1,), partition_epoch=1))
    assert [result.error for result in results] == [ErrorCode.not_enough_replicas_after_append]
