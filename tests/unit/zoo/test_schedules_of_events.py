"""Schedules of events find their bugs on a virtual clock as well, and are valid without the bug (M1)."""

from __future__ import annotations

import pytest
from harrow.faults import Schedule
from harrow.harness.run_settings import settings_of
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.catalog import ZOO, bug_named
from harrow.harness.zoo.directed import plan_in_order, settings_on_processes, unplanted
from harrow.harness.zoo.trial import EVENTS, run_trial
from long_runs import some

TOO_FAST = frozenset({"kip_903"})
"""Bugs whose schedule is too slow for a virtual clock: an empty follower has the leader's few batches within a turn."""
RUNS_MOST = 8
"""A search by events has few runs: which broker is the controller, say, is still drawn."""
NAMES = sorted({bug.name for bug in ZOO if bug.in_order is not None} - TOO_FAST)


@pytest.mark.parametrize("name", some(NAMES, suite=2))
def test_a_search_by_events_finds_the_bug_and_its_schedule_repeats_the_run(name: str) -> None:
    trial = run_trial(bug_named(name), 3, EVENTS)
    assert trial.found, trial
    assert not trial.false_alarms
    assert trial.runs <= RUNS_MOST
    assert trial.schedule is not None
    again = run_schedule(Schedule.from_json(trial.schedule.to_json()))
    assert {anomaly for anomaly, _ in again.anomalies} == set(trial.anomalies)


@pytest.mark.parametrize("name", sorted(TOO_FAST))
def test_a_schedule_that_finds_its_bug_on_real_processes_alone_is_valid_without_the_bug(name: str) -> None:
    result = run_schedule(unplanted(plan_in_order(bug_named(name), 1)))
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert len(result.faults) == len(result.schedule.steps)


def test_a_bug_without_a_schedule_of_events_is_searched_for_by_its_own() -> None:
    bug = bug_named("kip_841")
    planned = plan_in_order(bug, 5)
    assert not any(step.after or step.until for step in planned.steps)
    assert settings_of(planned).plants == (bug.module,)
    assert settings_on_processes(bug) == {}
