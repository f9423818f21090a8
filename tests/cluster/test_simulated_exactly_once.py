"""A job with transactions on a virtual clock: its processes and brokers are killed, settings change, power is lost.

Records are deleted and logs compacted meanwhile. Each input has one output, and nothing stays open (B6, F3, F4, F6, G2,
G3, H4).
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from harrow.cluster.ids import TopicPartition
from harrow.cluster.replication.partition import Partition
from harrow.cluster.transactions.service import TransactionService
from harrow.faults import Schedule
from harrow.harness.run_settings import EXACTLY_ONCE
from harrow.harness.simulation import (
    SimulationOptions,
    SimulationResult,
    plan_seed,
    run_schedule,
    run_seed,
)
from harrow.harness.simulation.group_member import Membership
from harrow.harness.simulation.transactional_producer import SimulatedTransactionalProducer

OPTIONS = SimulationOptions(workload=EXACTLY_ONCE, seconds=5.0, batches=60)


def ignore(_: TransactionService, transactional_id: str) -> None:
    assert transactional_id


def names(result: SimulationResult) -> set[str]:
    return {name for name, _ in result.anomalies}


@pytest.mark.parametrize("seed", range(1, 9))
def test_each_input_has_one_output_and_nothing_stays_open(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.status == "valid", (result.anomalies, result.reasons)


def test_the_recorded_schedule_of_a_job_repeats_its_run_byte_for_byte() -> None:
    first = run_seed(4, OPTIONS, keep_trace=True)
    again = run_schedule(Schedule.from_json(first.schedule.to_json()), keep_trace=True)
    assert again.trace == first.trace
    for event in (
        "client.operator.alter",
        "client.operator.delete-records",
        "client.operator.elect",
    ):
        assert event in first.trace


def test_seeds_differ_in_whether_power_is_lost() -> None:
    drawn = {
        "log.flush.interval.messages" in plan_seed(seed, OPTIONS).run["config"] for seed in range(9)
    }
    assert drawn == {True, False}


def test_a_job_that_commits_no_offsets_is_found_to_write_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forget(
        _: SimulatedTransactionalProducer, __: Mapping[TopicPartition, int], ___: Membership
    ) -> None:
        return None

    monkeypatch.setattr(SimulatedTransactionalProducer, "send_offsets", forget)
    assert "duplicate-output" in names(run_seed(3, OPTIONS))


def test_brokers_that_deliver_open_transactions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Partition, "last_stable_offset", property(lambda partition: partition.high_watermark)
    )
    found = [run_seed(seed, OPTIONS) for seed in range(1, 4)]
    assert set[str]().union(*map(names, found)) & {"inconsistent-offsets", "invariant-violated"}


def test_a_transaction_that_is_never_ended_is_found_to_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def forget(_: SimulatedTransactionalProducer, *, commit: bool) -> None:
        assert commit in (True, False)

    monkeypatch.setattr(SimulatedTransactionalProducer, "end", forget)
    monkeypatch.setattr(TransactionService, "_begin_abort", ignore)
    found = dict(run_seed(3, OPTIONS).anomalies)
    assert "is Ongoing on broker" in found["not-converged"]
    assert ": LSO " in found["not-converged"]
