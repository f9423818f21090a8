"""C4 with `harrow.replica.silence.max.ms`: a slow follower stays for Kafka's lag time, a silent one leaves earlier."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.defaults import cluster_defaults
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import BrokerEpoch, NodeId, Offset, TopicPartition

from .model import LAG_MS, Replica
from .simulation import Simulation

SILENCE_MS = LAG_MS // 4
TP = TopicPartition("t", 0)
LAG, SILENCE, WAIT = ("replica.lag.time.max.ms", "harrow.replica.silence.max.ms", "replica.fetch.wait.max.ms")


def leader_with_a_follower(silence_ms: int) -> Replica:
    """Broker 2 was caught up at time 0; from then on the leader's log is always longer."""
    leader = Replica(1, silence_ms=silence_ms)
    leader.lead(1, (1, 2), now=0)
    fetched(leader, 0, 0)
    for number in range(100):
        leader.produce(str(number))
    return leader


def fetched(leader: Replica, offset: int, now: int) -> None:
    leader.partition.follower_fetched(NodeId(2), Offset(offset), Offset(0), now, BrokerEpoch(1))


def leaves(leader: Replica, now: int, listening: int = -1) -> bool:
    return leader.partition.propose_shrink(now, listening) is not None


def test_a_follower_that_fetches_and_stays_behind_leaves_after_the_lag_time() -> None:
    leader = leader_with_a_follower(SILENCE_MS)
    for at in range(0, LAG_MS + 1, SILENCE_MS // 2):
        fetched(leader, 1 + at * 50 // LAG_MS, at)
        assert not leaves(leader, at), at
    fetched(leader, 60, LAG_MS + 1)
    assert leaves(leader, LAG_MS + 1)


def test_a_follower_that_is_behind_and_silent_leaves_after_the_silence() -> None:
    leader = leader_with_a_follower(SILENCE_MS)
    fetched(leader, 1, 40)
    assert not leaves(leader, 40 + SILENCE_MS)
    assert leaves(leader, 41 + SILENCE_MS)


def test_a_silent_follower_at_the_end_of_the_log_stays() -> None:
    leader = leader_with_a_follower(SILENCE_MS)
    fetched(leader, 100, 100)
    assert not leaves(leader, 100 * LAG_MS)


@pytest.mark.parametrize("silence_ms", [0, LAG_MS, 10 * LAG_MS])
def test_without_a_shorter_silence_the_lag_time_alone_decides(silence_ms: int) -> None:
    leader = leader_with_a_follower(silence_ms)
    assert not leaves(leader, LAG_MS)
    assert leaves(leader, LAG_MS + 1)


def test_silence_counts_from_when_the_leader_itself_went_on() -> None:
    leader = leader_with_a_follower(SILENCE_MS)
    stopped_until = 2 * SILENCE_MS
    assert not leaves(leader, stopped_until, listening=stopped_until)
    assert not leaves(leader, stopped_until + SILENCE_MS, listening=stopped_until)
    assert leaves(leader, stopped_until + SILENCE_MS + 1, listening=stopped_until)


def test_the_lag_time_counts_although_the_leader_was_stopped() -> None:
    leader = leader_with_a_follower(SILENCE_MS)
    assert leaves(leader, LAG_MS + 1, listening=LAG_MS + 1)


def test_acks_all_goes_on_after_the_silence_where_the_lag_time_is_longer() -> None:
    sim = Simulation(3, config={LAG: 60_000, SILENCE: 600, WAIT: 100})
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(500)
    sim.blocked |= {(1, 3), (3, 1)}
    began_ms = sim.loop.now_ms
    results = sim.produce(1, TP, [b"a"], timeout_ms=50_000)
    assert sim.loop.run_until(lambda: bool(results), 5_000)
    assert results[0].error is ErrorCode.none
    assert sorted(sim.registry.states[TP].isr) == [1, 2]
    assert 600 - 100 <= sim.loop.now_ms - began_ms <= 600 * 1.5 + 100
    sim.close()


def test_a_leader_that_was_stopped_keeps_the_followers_that_it_could_not_hear() -> None:
    sim = Simulation(3, config={LAG: 60_000, SILENCE: 600, WAIT: 100})
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(500)
    results = sim.produce(1, TP, [b"a"], timeout_ms=50_000)
    leader = sim.brokers[1]
    leader.machine.pause()  # before the followers have said that they have it
    sim.loop.run_for(5_000)
    leader.machine.resume()
    assert sim.loop.run_until(lambda: bool(results), 5_000)
    sim.loop.run_for(2_000)
    assert sorted(sim.registry.states[TP].isr) == [1, 2, 3]
    assert leader.traced("partition.isr") == []
    sim.close()


def test_a_harness_cluster_has_kafkas_lag_time_and_a_short_silence() -> None:
    config = BrokerConfig.parse(cluster_defaults(3))
    assert (config.number(LAG), config.number(SILENCE)) == (30_000, 1_500)


@pytest.mark.parametrize(
    ("given", "silence_ms"),
    [
        ({LAG: 500}, 0),
        ({LAG: 60_000}, 0),
        ({WAIT: 100}, 1_500),
        ({WAIT: "2000"}, 6_000),
        ({SILENCE: 300}, 300),
        ({LAG: 60_000, SILENCE: 300}, 300),
    ],
)
def test_who_sets_the_lag_time_gets_kafkas_rule_alone(given: dict[str, object], silence_ms: int) -> None:
    config = BrokerConfig.parse(cluster_defaults(3, given) | given)
    assert config.number(SILENCE) == silence_ms
