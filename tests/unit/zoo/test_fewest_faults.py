"""The schedule of a run that found a bug, without the faults that the bug does not need (K9, M1)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from harrow.faults.events import took_effect
from harrow.faults.process_faults import Kill
from harrow.faults.schedule import Schedule, step_after
from harrow.faults.targets import leader
from harrow.faults.zoo.bug import Bug
from harrow.harness.run_settings import settings_of
from harrow.harness.simulation import SimulationOptions, plan_seed
from harrow.harness.zoo.catalog import bug_named
from harrow.harness.zoo.directed import unplanted
from harrow.harness.zoo.fewest_faults import FAILURES, RUNS, fewest_faults
from harrow.harness.zoo.trial import Observed, SimulatedRuns, run_trial
from long_runs import long_run

BUG = Bug(
    number=99,
    module="harrow.faults.zoo.kip_101",
    title="KAFKA-99: a bug",
    versions="0.9",
    needs="a fault",
    seen_as=frozenset({"lost-write"}),
    options=SimulationOptions(plants=("harrow.faults.zoo.kip_101",)),
)
KILL = Kill(target=leader("orders"))
FOUND_BY = Schedule(
    run=plan_seed(1, BUG.options).run,
    steps=(
        step_after(1, KILL),
        step_after(2, KILL, took_effect("1")),
        step_after(3, KILL, took_effect("2"), until=(took_effect("1"),)),
    ),
)


class ScriptedRuns:
    """Runs with the anomalies that `shows` returns for the schedule, which is recorded."""

    def __init__(self, shows: Callable[[Schedule], set[str]]) -> None:
        self._shows = shows
        self.ran: list[Schedule] = []

    def run(self, schedule: Schedule, *, keep_coverage: bool = False) -> Observed:
        assert not keep_coverage
        self.ran.append(schedule)
        return Observed(anomalies=frozenset(self._shows(schedule)), faults=len(schedule.steps), schedule=schedule)

    def clock(self) -> float:
        return 0.0


def planted(schedule: Schedule) -> bool:
    return bool(settings_of(schedule).plants)


def needs(*ids: str) -> Callable[[Schedule], set[str]]:
    """Shows the bug when these steps are there, and nothing without the bug."""

    def shows(schedule: Schedule) -> set[str]:
        there = {step.id for step in schedule.steps}
        return {"lost-write"} if planted(schedule) and there >= set(ids) else set()

    return shows


def test_only_the_steps_that_the_bug_needs_remain_and_wait_for_what_is_left() -> None:
    runs = ScriptedRuns(needs("3"))
    result = fewest_faults(BUG, FOUND_BY, runs)
    assert result.false_alarm is None
    assert result.schedule is not None
    (step,) = result.schedule.steps
    assert (step.id, step.after, step.until, step.trigger) == ("3", (), (), "traffic")
    assert runs.ran[-1] == unplanted(result.schedule)


def test_a_candidate_is_kept_when_two_of_three_runs_show_the_bug() -> None:
    shown = itertools.cycle([True, False, True])
    runs = ScriptedRuns(lambda given: {"lost-write"} if planted(given) and next(shown) else set())
    result = fewest_faults(BUG, FOUND_BY, runs)
    assert result.schedule is not None
    assert result.schedule.steps == ()
    assert (len(runs.ran), (FAILURES, RUNS)) == (2 * RUNS + 1, (2, 3))


def test_a_candidate_that_shows_the_bug_once_is_given_up() -> None:
    seen = set[int]()

    def shows(schedule: Schedule) -> set[str]:
        steps = len(schedule.steps)
        always, first = steps == len(FOUND_BY.steps), steps not in seen
        seen.add(steps)
        return {"lost-write"} if planted(schedule) and (always or first) else set()

    result = fewest_faults(BUG, FOUND_BY, ScriptedRuns(shows))
    assert result.schedule is not None
    assert len(result.schedule.steps) == len(FOUND_BY.steps)


def test_a_bug_that_does_not_come_back_is_not_shrunk() -> None:
    runs = ScriptedRuns(lambda _: {"not-converged"})
    result = fewest_faults(BUG, FOUND_BY, runs)
    assert (result.schedule, result.false_alarm, len(runs.ran)) == (None, None, RUNS - FAILURES + 1)


def test_an_anomaly_without_the_bug_is_a_false_alarm() -> None:
    result = fewest_faults(BUG, FOUND_BY, ScriptedRuns(lambda _: {"lost-write"}))
    assert result.schedule is None
    assert result.false_alarm is not None
    assert not planted(result.false_alarm)


@long_run
def test_a_simulated_schedule_of_transactions_is_shrunk_and_still_shows_the_bug() -> None:
    bug = bug_named("kafka_5376")
    trial = run_trial(bug, 7)
    assert trial.schedule is not None
    result = fewest_faults(bug, trial.schedule)
    assert result.schedule is not None
    assert len(result.schedule.steps) <= len(trial.schedule.steps)
    assert SimulatedRuns().run(result.schedule).anomalies & bug.seen_as
