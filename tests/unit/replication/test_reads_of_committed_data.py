"""read_committed stops at the first open transaction and receives the aborted transactions (E4, F5)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.records import build_end_txn_marker

from .sim_clients import PATIENT, Consumer, list_offset, result_of, three
from .simulation import Simulation

TP = TopicPartition("orders", 0)
READ_COMMITTED = 1


def write(sim: Simulation, producer_id: int, sequence: int, *values: bytes) -> int:
    """Append a batch to `producer_id`'s open transaction; return its offset."""
    appended = sim.produce(
        1, TP, values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    return committed(sim, appended)


def end(sim: Simulation, producer_id: int, *, commit: bool) -> int:
    """Append the marker as the transaction coordinator does; return its offset."""
    marker = build_end_txn_marker(
        commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
    )
    appended: list[Any] = []
    sim.brokers[1].replicas.append(
        {TP: marker}, acks=-1, timeout_ms=5_000, done=lambda results: appended.append(results[TP]), internal=True
    )
    return committed(sim, appended)


def committed(sim: Simulation, appended: list[Any]) -> int:
    result = result_of(sim, appended, 5_000)
    assert result.error == 0
    offset: int = result.base_offset
    return offset


def latest(sim: Simulation, isolation: int, timestamp: int = -1) -> int:
    offset: int = list_offset(sim, timestamp, isolation=isolation).offset
    return offset


@pytest.mark.parametrize("node", [1, 2])
def test_read_committed_stops_before_an_open_transaction(node: int) -> None:
    sim = three(**PATIENT)
    committed(sim, sim.produce(1, TP, [b"plain"]))
    opened = write(sim, 7, 0, b"open")
    committed(sim, sim.produce(1, TP, [b"behind"]))
    sim.loop.run_for(1_000)  # the followers receive the HW
    assert opened == 1
    response = Consumer(sim, node=node).fetch(0, isolation=READ_COMMITTED)
    assert (response.high_watermark, response.last_stable_offset, response.aborted) == (3, 1, [])
    assert b"plain" in bytes(response.records)
    assert b"open" not in bytes(response.records)
    everything = Consumer(sim, node=node).fetch(0)
    assert (everything.last_stable_offset, everything.aborted) == (1, None)
    assert b"behind" in bytes(everything.records)


@pytest.mark.parametrize(("commit", "aborted"), [(True, []), (False, [(7, 0)])])
def test_read_committed_fetch_completes_at_the_marker_not_at_the_data(
    commit: bool, aborted: list[tuple[int, int]]
) -> None:
    sim = three(**PATIENT)
    consumer = Consumer(sim)
    waiting = consumer.send(0, wait=30_000, isolation=READ_COMMITTED)
    write(sim, 7, 0, b"a")
    write(sim, 7, 1, b"b")
    sim.loop.run_for(1_000)
    assert not waiting.done(), "two batches are below the HW, none is stable"
    began = sim.loop.now_ms
    end(sim, 7, commit=commit)
    response = consumer.response(waiting)
    assert sim.loop.now_ms - began < 2_000
    assert (response.high_watermark, response.last_stable_offset, response.aborted) == (3, 3, aborted)
    assert b"b" in bytes(response.records), "the consumer drops the aborted records"


def test_earliest_of_two_open_transactions_limits_read_committed() -> None:
    sim = three(**PATIENT)
    write(sim, 7, 0, b"first")
    write(sim, 8, 0, b"second")
    end(sim, 7, commit=True)
    assert Consumer(sim).fetch(0, isolation=READ_COMMITTED).last_stable_offset == 1
    end(sim, 8, commit=False)
    response = Consumer(sim).fetch(0, isolation=READ_COMMITTED)
    assert (response.last_stable_offset, response.aborted) == (4, [(8, 1)])


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_aborted_transactions_are_those_of_the_records_that_were_read(tail_bytes: int) -> None:
    """From disk a read ends with its segment and the list does not grow with the log; from memory it goes beyond."""
    sim = three(**PATIENT, **{"internal.segment.bytes": 300, "harrow.tail.bytes": tail_bytes})
    for number in range(6):
        write(sim, 7, number, b"x" * 200)
        end(sim, 7, commit=False)
    first = Consumer(sim).fetch(0, isolation=READ_COMMITTED)
    assert first.last_stable_offset == 12
    read = [header for _, _, header in headers(first.records)]
    assert len(read) == (12 if tail_bytes else 1)
    assert first.aborted == [(7, header.base_offset) for header in read if not header.is_control]
    last = Consumer(sim).fetch(10, isolation=READ_COMMITTED)
    assert last.aborted == [(7, 10)]


def test_latest_offset_for_read_committed_is_the_last_stable_offset() -> None:
    sim = three(**PATIENT)
    committed(sim, sim.produce(1, TP, [b"plain"]))
    write(sim, 7, 0, b"open")
    assert (latest(sim, 0), latest(sim, READ_COMMITTED)) == (2, 1)
    now_ms = sim.brokers[1].host.clock.wall_ms()
    assert latest(sim, READ_COMMITTED, timestamp=1) == 0
    assert latest(sim, READ_COMMITTED, timestamp=now_ms + 10**6) == -1
    end(sim, 7, commit=True)
    assert (latest(sim, 0), latest(sim, READ_COMMITTED)) == (3, 3)
