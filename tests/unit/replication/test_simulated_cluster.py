"""Whole brokers' replication on a virtual clock: the ordinary course, failover, and what may go wrong."""

from __future__ import annotations

from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition

from .simulation import Simulation

TP = TopicPartition("orders", 0)


def three() -> Simulation:
    sim = Simulation(3, seed=1)
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(50)
    return sim


def test_acks_all_is_answered_when_every_follower_has_it() -> None:
    sim = three()
    answers = sim.produce(1, TP, [b"a"])
    assert answers == []
    assert sim.loop.run_until(lambda: bool(answers), 100)
    assert answers[0].error is ErrorCode.none
    assert answers[0].base_offset == 0
    assert [sim.partition(n, TP).log_end_offset for n in (1, 2, 3)] == [1, 1, 1]
    assert sim.partition(1, TP).high_watermark == 1
