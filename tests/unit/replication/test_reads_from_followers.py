"""Consumers may fetch from followers, up to the HW; its advance completes waiting fetches (KIP-392, A4, E4)."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition

from .sim_clients import PATIENT, Consumer, three

TP = TopicPartition("orders", 0)


def test_follower_serves_committed_records() -> None:
    sim = three(**PATIENT)
    sim.produce(1, TP, [b"hello"])
    sim.loop.run_for(1_000)
    response = Consumer(sim, node=2).fetch(0)
    assert (response.error, response.high_watermark) == (0, 1)
    assert b"hello" in bytes(response.records)


def test_follower_serves_nothing_above_its_own_high_watermark() -> None:
    sim = three(**PATIENT)
    sim.brokers[3].kill()
    sim.produce(1, TP, [b"a"])
    sim.loop.run_for(100)
    assert sim.partition(2, TP).log_end_offset == 1
    response = Consumer(sim, node=2).fetch(0, wait=50)
    assert (response.error, len(response.records), response.high_watermark) == (0, 0, 0)


def test_fetch_waiting_at_a_follower_completes_when_its_high_watermark_moves() -> None:
    sim = three(**PATIENT)
    consumer = Consumer(sim, node=2)
    promise = consumer.send(0, wait=30_000)
    sim.loop.run_for(20)
    assert not promise.done()
    began = sim.loop.now_ms
    sim.produce(1, TP, [b"hello"])
    assert b"hello" in bytes(consumer.response(promise).records)
    assert sim.loop.now_ms - began < 2_000, "completes when the second fetch round carries the high watermark"


@pytest.mark.parametrize(
    ("version", "epoch", "error"),
    [
        (10, -1, ErrorCode.not_leader_or_follower),  # before version 11 only the leader serves consumers
        (11, 0, ErrorCode.none),
        (12, 1, ErrorCode.unknown_leader_epoch),
    ],
)
def test_fetch_from_a_follower_depends_on_version_and_epoch(version: int, epoch: int, error: ErrorCode) -> None:
    response = Consumer(three(**PATIENT), node=2, version=version).fetch(0, epoch=epoch, wait=0)
    assert response.error == error


def test_fetch_waiting_at_a_follower_completes_when_the_leader_changes() -> None:
    sim = three(**PATIENT)
    for leader in (3, 2):
        consumer = Consumer(sim, node=2)
        promise = consumer.send(0, wait=30_000, epoch=sim.partition(2, TP).leader_epoch)
        sim.loop.run_for(10)
        sim.elect(TP, leader)
        assert consumer.response(promise).error == ErrorCode.fenced_leader_epoch


def test_stopped_replica_serves_no_fetch() -> None:
    sim = three(**PATIENT)
    promise = (consumer := Consumer(sim, node=2)).send(0, wait=30_000)
    sim.loop.run_for(10)
    sim.brokers[2].replicas.directory.drop(sim.partition(2, TP))
    assert consumer.response(promise).error == ErrorCode.not_leader_or_follower


def test_lagging_follower_returns_offset_not_available() -> None:
    """OFFSET_OUT_OF_RANGE would make a consumer reset its offset by `auto.offset.reset`."""
    sim = three(**PATIENT)
    assert Consumer(sim, node=2).fetch(5, wait=0).error == ErrorCode.offset_not_available
    assert Consumer(sim, node=2).fetch(-1, wait=0).error == ErrorCode.offset_out_of_range
    assert Consumer(sim, node=1).fetch(5, wait=0).error == ErrorCode.offset_out_of_range
