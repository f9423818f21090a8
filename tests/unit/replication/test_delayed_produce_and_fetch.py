"""Delayed produce and fetch operations (E3, E4), on whole brokers on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import Watermarks
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.records import build_batch

from .sim_clients import Consumer, result_of, three
from .simulation import Simulation

TP = TopicPartition("orders", 0)


def ends(sim: Simulation) -> list[int]:
    return [sim.partition(node, TP).log_end_offset for node in sim.brokers]


# --- delayed produce (E3)


def test_produce_with_acks_all_completes_when_every_follower_has_the_record() -> None:
    sim = three()
    results = sim.produce(1, TP, [b"a"])
    assert results == []
    result = result_of(sim, results, 100)
    assert (result.error, result.base_offset) == (ErrorCode.none, 0)
    assert ends(sim) == [1, 1, 1]
    assert sim.partition(1, TP).high_watermark == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_produce_with_acks_0_or_1_completes_at_once(acks: int) -> None:
    sim = three()
    assert sim.produce(1, TP, [b"a"], acks=acks)[0].error is ErrorCode.none


def test_produce_with_other_acks_is_refused() -> None:
    sim = three()
    assert sim.produce(1, TP, [b"a"], acks=2)[0].error is ErrorCode.invalid_required_acks
    assert sim.partition(1, TP).log_end_offset == 0


def test_produce_times_out_while_a_follower_is_silent() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"], timeout_ms=200)
    began = sim.loop.now_ms
    assert result_of(sim, results).error is ErrorCode.request_timed_out
    assert 200 <= sim.loop.now_ms - began <= 210
    assert sim.brokers[1].replicas.produces.delayed == 0


def test_lost_leadership_fails_waiting_produces() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"])
    sim.loop.run_for(20)
    sim.elect(TP, 2)
    assert result_of(sim, results, 50).error is ErrorCode.not_leader_or_follower


def test_new_epoch_of_the_same_leader_keeps_produces_waiting() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"])
    sim.loop.run_for(20)
    assert results == []
    sim.elect(TP, 1, [1, 2])  # the killed broker leaves the ISR (D4)
    assert result_of(sim, results, 50).error is ErrorCode.none


def test_new_leadership_generation_fails_earlier_produces() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    for node in (2, 3):
        sim.brokers[node].kill()
    results = sim.produce(1, TP, [b"a"])
    for leader in (2, 1):
        state = sim.registry.states[TP]
        state.leader, state.leader_epoch, state.isr = leader, state.leader_epoch + 1, [1]
        state.version += 1
        sim.call(1, 4, 7, sim.leader_and_isr(TP, 1))
    assert result_of(sim, results).error is ErrorCode.not_leader_or_follower


def test_isr_that_shrinks_below_the_minimum_fails_the_produce_after_the_append() -> None:
    sim = three(**{"min.insync.replicas": 2, "replica.lag.time.max.ms": 300})
    for node in (2, 3):
        sim.brokers[node].kill()
    results = sim.produce(1, TP, [b"a"], timeout_ms=20_000)
    assert result_of(sim, results).error is ErrorCode.not_enough_replicas_after_append
    assert sim.produce(1, TP, [b"b"])[0].error is ErrorCode.not_enough_replicas
    assert sim.registry.states[TP].isr == [1]


def test_produce_of_a_duplicate_waits_for_the_followers() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    batch = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    sim.brokers[3].kill()
    first = sim.produce(1, TP, [b"a"], timeout_ms=50, **batch)
    assert result_of(sim, first).error is ErrorCode.request_timed_out
    again = sim.produce(1, TP, [b"a"], **batch)
    sim.loop.run_for(100)
    assert again == []
    sim.brokers[3].start()
    sim.send_leader_and_isr(TP, [3])
    result = result_of(sim, again)
    assert (result.error, result.base_offset) == (ErrorCode.none, 0)
    assert ends(sim) == [1, 1, 1]


def test_every_partition_of_a_produce_gets_its_own_result() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    other, missing = TopicPartition("other", 0), TopicPartition("nowhere", 0)
    sim.create(other, [1, 2])
    sim.loop.run_for(50)
    sim.brokers[3].kill()
    batch = build_batch([(None, b"v", ())], timestamp_ms=1)
    found: list[Any] = []
    sim.brokers[1].replicas.append(
        {TP: batch, other: batch, missing: batch}, acks=-1, timeout_ms=100, done=found.append
    )
    results = result_of(sim, found)
    assert results[TP].error is ErrorCode.request_timed_out
    assert results[other].error is ErrorCode.none
    assert results[missing].error is ErrorCode.unknown_topic_or_partition


def test_produce_to_an_internal_topic_is_refused() -> None:
    sim = Simulation(1)
    tp = TopicPartition("__consumer_offsets", 0)
    sim.create(tp, [1])
    sim.loop.run_for(20)
    assert sim.produce(1, tp, [b"x"], acks=1)[0].error is ErrorCode.invalid_topic_exception


# --- delayed fetch (E4)


def test_fetch_at_the_end_waits_until_the_high_watermark_advances() -> None:
    sim = three()
    consumer = Consumer(sim)
    promise = consumer.send(0, wait=5_000)
    sim.loop.run_for(20)
    assert not promise.done()
    result_of(sim, sim.produce(1, TP, [b"hello"]))
    response = consumer.response(promise)
    assert b"hello" in bytes(response.records)
    assert response.high_watermark == 1


def test_fetch_returns_nothing_above_the_high_watermark() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    sim.produce(1, TP, [b"a"])
    began = sim.loop.now_ms
    response = Consumer(sim).fetch(0, wait=100)
    assert (len(response.records), response.high_watermark) == (0, 0)
    assert sim.loop.now_ms - began >= 100


def test_fetch_waits_until_min_bytes_are_readable() -> None:
    sim = three()
    consumer = Consumer(sim)
    promise = consumer.send(0, wait=5_000, min_bytes=400)
    result_of(sim, sim.produce(1, TP, [b"x" * 100]))
    sim.loop.run_for(20)
    assert not promise.done()
    result_of(sim, sim.produce(1, TP, [b"x" * 300]))
    assert len(consumer.response(promise).records) >= 400


def test_waiting_fetch_completes_at_once_when_the_leader_changes() -> None:
    sim = three()
    consumer = Consumer(sim)
    promise = consumer.send(0, wait=30_000, epoch=0)
    sim.loop.run_for(10)
    sim.elect(TP, 2)
    assert consumer.response(promise).error == ErrorCode.fenced_leader_epoch
    assert Consumer(sim, version=10).fetch(0, epoch=1).error == ErrorCode.not_leader_or_follower
    assert consumer.fetch(0, epoch=9).error == ErrorCode.unknown_leader_epoch


@pytest.mark.parametrize("offset", [-1, 1, 99])
def test_fetch_out_of_range_is_refused_at_once(offset: int) -> None:
    sim = three()
    response = Consumer(sim).fetch(offset, wait=30_000)
    assert response.error == ErrorCode.offset_out_of_range


def test_fetch_by_topic_id_returns_records_or_unknown_topic_id() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    assert len(Consumer(sim, version=13).fetch(0).records) > 0
    sim.topic_ids[TP.topic] = type(sim.topic_id(TP.topic))(int=99)
    assert Consumer(sim, version=13).fetch(0).error == ErrorCode.unknown_topic_id


def test_fetch_with_a_diverging_epoch_returns_it_and_moves_no_offset() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    sim.elect(TP, 1)
    sim.loop.run_for(20)
    result_of(sim, sim.produce(1, TP, [b"b"]))
    before = sim.partition(1, TP).high_watermark
    response = Consumer(sim).fetch(2, wait=30_000, last_epoch=0, replica=2)
    assert response.diverging == (0, 1)
    assert sim.partition(1, TP).high_watermark == before


def test_tap_records_the_delivered_batches() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    Consumer(sim).fetch(0)
    (fetched, row), (said, watermarks) = sim.brokers[1].tap.rows
    assert (fetched, row["tp"]) == ("fetched", TP)  # the tap records no fetches of followers
    assert said == "watermarks"
    epoch = sim.partition(1, TP).leader_epoch
    assert watermarks["found"] == [Watermarks(TP.topic, TP.partition, epoch, 1, 1, 0)]
