"""A guided search on simulations: runs that reached something new are changed, and run again (K9)."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from harrow.faults.schedule import Schedule
from harrow.harness.commands import cli
from harrow.harness.search.coverage import Coverage, Moment
from harrow.harness.search.guided import FRESH_FIRST, GuidedSearch, kind_of_run
from harrow.harness.search.mutations import Parent, strike
from harrow.harness.simulation import SimulationOptions, SimulationResult, plan_seed, run_schedule
from harrow.harness.zoo.swarm import plan_swarm

SHORT = SimulationOptions(seconds=3.0, batches=30)


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
    assert [moment.label for moment in coverage(again).moments] == [
        moment.label for moment in coverage(killed).moments
    ]
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


def test_a_strike_leaves_what_came_before_it_as_it_was(killed: SimulationResult) -> None:
    last = killed.schedule.steps[-1]
    assert last.fired_ms is not None
    moment = Moment(last.fired_ms + 200, "after", None)
    fault = last.fault
    child = strike(Parent(killed.schedule, ()), moment, fault, random.Random(1), shorten=False)
    result = run_schedule(child, keep_trace=True)
    struck = next(step for step in child.steps if step.id == "x")
    assert struck.at_ms > last.fired_ms
    effect = next(
        line for line in killed.trace.splitlines()
        if "fault.effect" in line and f'"id":"{last.id}"' in line
    )  # fmt: skip
    at = killed.trace.index(effect) + len(effect)
    assert result.trace[:at] == killed.trace[:at]


def run_search(runs: int) -> tuple[GuidedSearch, list[Schedule], list[SimulationResult]]:
    search = GuidedSearch(1, lambda seed: plan_seed(seed, SHORT))
    proposed, results = list[Schedule](), list[SimulationResult]()
    for _ in range(runs):
        proposed.append(search.propose())
        results.append(run_schedule(proposed[-1], keep_coverage=True))
        search.learn(results[-1])
    return search, proposed, results


def test_a_search_begins_with_the_pool_and_goes_on_with_children_and_repeats_exactly() -> None:
    search, proposed, results = run_search(12)
    pool = [plan_seed(seed, SHORT) for seed in range(1, 13)]
    assert proposed[:FRESH_FIRST] == pool[:FRESH_FIRST]
    children = [schedule for schedule in proposed if schedule not in pool]
    assert len(children) >= 3
    assert {result.status for result in results} <= {"valid", "unknown"}
    assert set(search.features) == {name for row in results for name in coverage(row).features}

    _, again, _ = run_search(12)
    assert again == proposed


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
