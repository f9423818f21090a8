"""A trial of the zoo: what counts as found, and when it ends (M1)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug
from harrow.harness.run_settings import settings_of
from harrow.harness.simulation import SimulationOptions
from harrow.harness.zoo.catalog import ZOO
from harrow.harness.zoo.directed import plan_directed, unplanted
from harrow.harness.zoo.trial import Observed, run_trial

BUG = Bug(
    number=99,
    module="harrow.faults.zoo.kip_101",
    title="KAFKA-99: a bug",
    versions="0.9",
    needs="a fault",
    seen_as=frozenset({"lost-write"}),
    options=SimulationOptions(),
)
RUN_S = 10.0


class ScriptedRuns:
    """Runs that take ten seconds each and show what `shows` says for the seed and the plants."""

    def __init__(self, shows: Callable[[int, bool], set[str]]) -> None:
        self._shows = shows
        self._now = 0.0
        self.ran: list[tuple[int, bool]] = []

    def run(self, schedule: Schedule, *, keep_coverage: bool = False) -> Observed:
        assert not keep_coverage
        settings = settings_of(schedule)
        run = (settings.seed, bool(settings.plants))
        self.ran.append(run)
        self._now += RUN_S
        return Observed(anomalies=frozenset(self._shows(*run)), faults=2, schedule=schedule)

    def clock(self) -> float:
        return self._now


def test_the_run_that_shows_the_bug_ends_the_trial() -> None:
    runs = ScriptedRuns(lambda seed, bug: {"lost-write"} if bug and seed == 2_000_003 else set())
    trial = run_trial(BUG, 2, where=runs)
    assert (trial.found, trial.runs, trial.faults) == (True, 3, 2)
    assert trial.seconds == 3 * RUN_S, "the run without the bug is not counted"
    assert trial.anomalies == ("lost-write",)
    assert trial.schedule is not None
    assert settings_of(trial.schedule).plants == (BUG.module,)
    assert runs.ran[-1] == (2_000_003, False)


def test_a_run_that_fails_without_the_bug_is_a_false_alarm_and_not_found() -> None:
    runs = ScriptedRuns(lambda seed, _: {"lost-write"} if seed == 1 else set())
    trial = run_trial(BUG, 0, where=runs)
    assert not trial.found
    (alarm,) = trial.false_alarms
    assert (settings_of(alarm).seed, settings_of(alarm).plants) == (1, ())


def test_other_anomalies_are_named_and_do_not_count() -> None:
    runs = ScriptedRuns(lambda _, bug: {"duplicate"} if bug else set())
    trial = run_trial(BUG, 0, where=runs, budget_s=2 * RUN_S)
    assert (trial.found, trial.others, trial.runs) == (False, ("duplicate",), 2)


def test_a_trial_ends_when_its_budget_is_used_up() -> None:
    trial = run_trial(BUG, 0, where=ScriptedRuns(lambda _seed, _bug: set()), budget_s=35.0)
    assert (trial.found, trial.runs, trial.seconds, trial.schedule) == (False, 4, 40.0, None)


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.name)
def test_a_directed_run_is_a_function_of_its_seed(bug: Bug) -> None:
    first, again, other = (plan_directed(bug, seed) for seed in (5, 5, 6))
    assert first == again != other
    assert first.steps
    assert Schedule.from_json(first.to_json()).steps == first.steps
    assert settings_of(first).plants == (bug.module,)
    assert settings_of(unplanted(first)).plants == ()
    assert {**unplanted(first).run, "plants": [bug.module]} == first.run


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.name)
def test_a_bug_can_be_sent_to_a_worker_process(bug: Bug) -> None:
    sent = pickle.loads(pickle.dumps(bug))
    assert plan_directed(sent, 5) == plan_directed(bug, 5)


@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.name)
def test_the_head_of_each_bug_says_what_was_wrong_what_is_replaced_and_where_it_is_described(bug: Bug) -> None:
    head = Path("faults", "zoo", f"{bug.name}.py").read_text(encoding="utf-8").partition('"""\n')[0]
    for word in ("What was wrong", "Replaces:", "Source:"):
        assert word in head, f"{bug.name} does not say: {word}"
