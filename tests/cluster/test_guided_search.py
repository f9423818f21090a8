"""A guided search on simulations: runs that reached something new are changed, and run again (K9)."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from click.testing import CliRunner
from harrow.faults.runs import EXACTLY_ONCE, ORDERS
from harrow.faults.schedule import Schedule
from harrow.harness.commands import cli
from harrow.harness.run_settings import settings_of
from harrow.harness.search.guided import (
    COMPARED_MOST,
    PLANNED_AHEAD,
    SEEDS_A_RUN,
    SQUEEZED,
    GuidedSearch,
    density,
    kind_of_run,
    squeezed,
)
from harrow.harness.simulation import SimulationOptions, SimulationResult, plan_seed, run_schedule
from harrow.harness.simulation.coverage import Coverage
from harrow.harness.zoo.swarm import plan_swarm
from long_runs import long_run

SHORT = SimulationOptions(seconds=3.0, batches=30)
COST_OF = {ORDERS: 1_000, EXACTLY_ONCE: 4_000}
"""In turns of the loop."""
FAKE = SimulationResult(
    seed=0,
    status="valid",
    anomalies=(),
    reasons=(),
    losses=(),
    planted=(),
    acknowledged=1,
    faults=(),
    kinds={},
    elections=0,
    converged_ms=0,
    turns=0,
    trace_sha256="",
    coverage=Coverage(frozenset({"s|>Ln3"})),
)


@pytest.fixture(scope="module")
def killed() -> SimulationResult:
    """A run with a kill."""
    planned = plan_seed(3, replace(SHORT, weights={"kill": 1}))
    return run_schedule(planned, keep_trace=True, keep_coverage=True)


def coverage(result: SimulationResult) -> Coverage:
    assert result.coverage is not None
    return result.coverage


def test_coverage_is_kept_only_where_it_is_wanted_and_repeats(killed: SimulationResult) -> None:
    again = run_schedule(killed.schedule, keep_coverage=True)
    assert again.trace_sha256 == killed.trace_sha256
    assert coverage(again).features == coverage(killed).features
    assert [moment.label for moment in coverage(again).moments] == [moment.label for moment in coverage(killed).moments]
    assert run_schedule(killed.schedule).coverage is None


def test_features_name_what_happened_and_no_broker_or_offset(killed: SimulationResult) -> None:
    features = coverage(killed).features
    assert any(name.startswith("f|kill:") for name in features)
    assert any(re.match(r"s\|.*>!?L[nsio]", name) for name in features)
    numbers = [int(found) for name in features for found in re.findall(r"\d+", name)]
    assert max(numbers) <= 3, "sizes of an ISR, and magnitudes"
    assert not any(f"broker-{node}" in name for name in features for node in range(1, 6))


def test_the_moments_of_a_run_are_those_of_its_schedule(killed: SimulationResult) -> None:
    effects = [moment for moment in coverage(killed).moments if moment.label.startswith("+kill")]
    fired_ms = [step.fired_ms for step in killed.schedule.steps]
    assert [moment.at_ms for moment in effects] == fired_ms
    times = [moment.at_ms for moment in coverage(killed).moments]
    assert times == sorted(times)
    assert times[0] >= 0


def run_search(runs: int) -> tuple[GuidedSearch, list[Schedule], list[SimulationResult]]:
    search = GuidedSearch(1, lambda seed: plan_seed(seed, SHORT))
    proposed, results = list[Schedule](), list[SimulationResult]()
    for _ in range(runs):
        proposed.append(search.propose())
        results.append(run_schedule(proposed[-1], keep_coverage=True))
        search.learn(results[-1])
    return search, proposed, results


@long_run
def test_a_search_runs_dense_plans_squeezed_and_mutates_what_was_new_and_repeats_exactly() -> None:
    search, proposed, results = run_search(16)
    pool = [plan_seed(seed, SHORT) for seed in range(1, 16 * SEEDS_A_RUN)]
    planned = [squeezed(schedule) for schedule in pool]
    newest = pool[PLANNED_AHEAD - COMPARED_MOST : PLANNED_AHEAD]
    assert proposed[0] == squeezed(max(newest, key=density))
    fresh = [schedule for schedule in proposed if schedule in planned]
    seeds = [planned.index(schedule) for schedule in fresh]
    assert seeds == sorted(set(seeds)), "in the order of their seeds, and none twice"
    assert mean(map(density, fresh)) > mean(map(density, pool))
    assert 2 <= len(proposed) - len(fresh) <= 8, "the others are mutations"
    assert {result.status for result in results} <= {"valid", "unknown"}
    assert set(search.features) == {name for row in results for name in coverage(row).features}

    _, again, _ = run_search(16)
    assert again == proposed


def test_a_squeezed_run_has_its_faults_sooner_and_its_records_at_the_same_pace() -> None:
    planned = plan_seed(3, SHORT)
    short = squeezed(planned)
    assert [step.fault for step in short.steps] == [step.fault for step in planned.steps]
    assert [step.at_ms for step in short.steps] == [round(SQUEEZED * step.at_ms) for step in planned.steps]
    before, after = settings_of(planned), settings_of(short)
    assert SQUEEZED * before.seconds <= after.seconds < before.seconds
    assert after.seconds / after.batches == pytest.approx(before.seconds / before.batches)


@pytest.mark.parametrize(
    "denser",
    [{"batches": 15}, {"partitions": 3}, {"config": {"replica.lag.time.max.ms": 400}}],
    ids=lambda changed: next(iter(changed)),
)
def test_fewer_records_more_partitions_and_a_shorter_lag_time_are_denser(denser: dict[str, Any]) -> None:
    options = replace(SHORT, config={"replica.lag.time.max.ms": 1_000})
    assert density(plan_seed(3, replace(options, **denser))) > density(plan_seed(3, options))


def test_kinds_of_runs_have_equal_parts_of_the_cost() -> None:
    search = GuidedSearch(1, plan_swarm)
    spent = Counter[object]()
    most = 0.0
    for _ in range(40):
        schedule = search.propose()
        result = replace(FAKE, schedule=schedule, turns=COST_OF[schedule.run["workload"]])
        search.learn(result)
        spent[kind_of_run(schedule)] += result.turns
        most = max(most, result.turns)
    assert len(spent) >= 5
    assert max(spent.values()) - min(spent.values()) <= most


def test_children_have_only_faults_and_settings_of_runs_of_their_kind() -> None:
    pool = [plan_swarm(seed) for seed in range(1, 61)]
    kinds = {kind_of_run(schedule) for schedule in pool}
    assert len(kinds) >= 4
    for kind in kinds:
        own = [schedule for schedule in pool if kind_of_run(schedule) == kind]
        drawn = {step.fault.kind for schedule in own for step in schedule.steps}
        if "power_loss" in drawn:
            assert all(row.run["config"]["log.flush.interval.messages"] == 1 for row in own)
        if own[0].run["resends"]:
            assert not drawn & {"kill", "terminate", "restart", "power_loss", "failpoint"}


def test_results_without_coverage_are_refused() -> None:
    search = GuidedSearch(1, lambda seed: plan_seed(seed, SHORT))
    with pytest.raises(ValueError, match="keep_coverage"):
        search.learn(run_schedule(search.propose()))


def test_the_command_counts_features_and_numbers_schedules(tmp_path: Path) -> None:
    arguments = ["simulate", "--search", "guided", "--seeds", "9", "--jobs", "1", "--seconds", "2"]
    result = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path)])
    assert "features of the cluster's behaviour that were reached" in result.output
    assert "9 simulated seeds" in result.output
    ledger = (tmp_path / "simulate" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(ledger) == 9
