"""A job with transactions on a virtual clock: its processes and brokers are killed, settings change, power is lost.

Records are deleted, logs compacted and partitions reassigned meanwhile, and unclean elections take records of the
output where its topic allows them. Each input has one output, and nothing stays open (B6, F3, F4, F6, G2, G3, H4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.replication.partition import Partition
from harrow.cluster.storage import log
from harrow.cluster.storage.indexes.transaction_index import TransactionIndex
from harrow.cluster.storage.log import Log
from harrow.cluster.transactions.service import TransactionService
from harrow.faults import Schedule
from harrow.faults.runs import EXACTLY_ONCE
from harrow.harness.simulation import SimulationOptions, SimulationResult, plan_seed, run_schedule, run_seed
from harrow.harness.simulation.group_member import Membership
from harrow.harness.simulation.transactional_producer import SimulatedTransactionalProducer
from harrow.harness.simulation.transform_workload import TransformWorkload
from long_runs import long_run, seeds

OPTIONS = SimulationOptions(workload=EXACTLY_ONCE, seconds=5.0, batches=60)
SCHEDULES = Path(__file__).parents[1] / "schedules"
LOSSY = (10, 18, 35, 97, 260)
"""Seeds whose unclean elections truncate records and markers of the output; one of them is enough to find a bug."""


def ignore(_: TransactionService, transactional_id: str) -> None:
    assert transactional_id


def count_every_answer(_: TransformWorkload, node: int, at_ns: int) -> bool:
    assert node > 0
    assert at_ns > 0
    return True


def names(result: SimulationResult) -> set[str]:
    return {name for name, _ in result.anomalies}


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(1, 41)))
def test_each_input_has_one_output_and_nothing_stays_open(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.status == "valid", (result.anomalies, result.reasons)


def test_old_offsets_are_legal_only_from_a_coordinator_that_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    path = SCHEDULES / "outputs-repeated-from-old-offsets.json"
    schedule = Schedule.from_json(path.read_text(encoding="utf-8"))
    assert run_schedule(schedule).status == "valid"

    monkeypatch.setattr(TransformWorkload, "_coordinates_since", count_every_answer)
    assert "committed-offset-regression" in names(run_schedule(schedule))


def test_repeated_outputs_are_legal_only_after_a_replaced_coordinators_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    path = SCHEDULES / "outputs-repeated-from-old-offsets.json"
    schedule = Schedule.from_json(path.read_text(encoding="utf-8"))
    result = run_schedule(schedule)
    assert result.status == "valid"
    assert {name for name, _ in result.losses} == {"duplicate-output"}

    monkeypatch.setattr(TransformWorkload, "_coordinates_since", count_every_answer)
    assert "duplicate-output" in names(run_schedule(schedule))


def test_the_recorded_schedule_of_a_job_repeats_its_run_byte_for_byte() -> None:
    first = run_seed(4, OPTIONS, keep_trace=True)
    again = run_schedule(Schedule.from_json(first.schedule.to_json()), keep_trace=True)
    assert again.trace == first.trace
    for event in (
        "client.operator.reassign",
        "client.operator.alter",
        "client.operator.delete-records",
        "client.operator.elect",
    ):
        assert event in first.trace


def test_seeds_differ_in_whether_power_is_lost() -> None:
    drawn = {"log.flush.interval.messages" in plan_seed(seed, OPTIONS).run["config"] for seed in range(9)}
    assert drawn == {True, False}


def test_seeds_differ_in_the_protocol_of_the_group_and_in_unclean_elections() -> None:
    drawn = [plan_seed(seed, OPTIONS).run for seed in range(20)]
    assert {run["group_protocol"] for run in drawn} == {"classic", "consumer"}
    assert {run["unclean_sink"] for run in drawn} == {True, False}
    assert not any(
        plan_seed(seed, replace(OPTIONS, plants=("harrow.faults.zoo.kip_101",))).run["unclean_sink"]
        for seed in range(20)
    )


def test_what_an_unclean_election_took_is_named_and_no_anomaly() -> None:
    results = [run_seed(seed, OPTIONS) for seed in LOSSY[:2]]
    assert [result.status for result in results] == ["valid"] * len(results), results
    assert "missing-output" in {name for result in results for name, _ in result.losses}


def returns(value: Any) -> Callable[..., Any]:
    """A function of any arguments that returns `value`."""

    def call(*arguments: Any) -> Any:
        del arguments
        return value

    return call


def untouched(index: TransactionIndex) -> None:
    """No damage."""
    del index


def test_losses_without_an_unclean_election_are_anomalies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TransformWorkload, "_unclean_epoch", returns(-1))
    assert any("missing-output" in names(run_seed(seed, OPTIONS)) for seed in LOSSY)


@pytest.mark.parametrize(
    ("damage", "name"), [(TransactionIndex.clear, "aborted-read"), (untouched, "unseen")], ids=["forgets", "keeps"]
)
def test_a_truncation_that_is_wrong_about_aborted_transactions_is_found(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[TransactionIndex], None], name: str
) -> None:
    def truncate_to(index: TransactionIndex, offset: int) -> None:
        assert offset >= 0
        damage(index)

    monkeypatch.setattr(TransactionIndex, "truncate_to", truncate_to)
    assert any(name in names(run_seed(seed, OPTIONS)) for seed in reversed(LOSSY))


@long_run
def test_a_truncation_that_forgets_no_producer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "truncate_producers", returns(None))
    assert any("not-converged" in names(run_seed(seed, OPTIONS)) for seed in LOSSY)


@long_run
def test_followers_without_aborted_transactions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader meets them when the partition has moved to brokers that copied it."""
    append = Log.append_as_follower

    def without_index(self: Log, *arguments: Any, **more: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "_note_aborted", returns(None))
            return append(self, *arguments, **more)

    monkeypatch.setattr(Log, "append_as_follower", without_index)
    assert "aborted-read" in names(run_seed(1, OPTIONS))


@long_run
def test_a_deletion_beyond_its_offset_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Log.increment_log_start_offset

    def too_far(self: Log, offset: Offset) -> bool:
        return delete(self, min(Offset(offset + 3), self.high_watermark()))

    monkeypatch.setattr(Log, "increment_log_start_offset", too_far)
    assert any("missing-output" in names(run_seed(seed, OPTIONS)) for seed in range(1, 16))


def test_a_job_that_commits_no_offsets_is_found_to_write_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_: SimulatedTransactionalProducer, __: Mapping[TopicPartition, int], ___: Membership) -> None:
        return None

    monkeypatch.setattr(SimulatedTransactionalProducer, "send_offsets", forget)
    assert "duplicate-output" in names(run_seed(3, OPTIONS))


@long_run
def test_brokers_that_deliver_open_transactions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))
    found = [run_seed(seed, OPTIONS) for seed in range(1, 4)]
    assert set[str]().union(*map(names, found)) & {"inconsistent-offsets", "invariant-violated"}


@long_run
def test_a_transaction_that_is_never_ended_is_found_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_: SimulatedTransactionalProducer, *, commit: bool) -> None:
        assert commit in (True, False)

    monkeypatch.setattr(SimulatedTransactionalProducer, "end", forget)
    monkeypatch.setattr(TransactionService, "_begin_abort", ignore)
    found = dict(run_seed(3, OPTIONS).anomalies)
    assert "is Ongoing on broker" in found["not-converged"]
    assert ": LSO " in found["not-converged"]
