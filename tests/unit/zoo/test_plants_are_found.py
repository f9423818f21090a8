"""A directed search finds each planted bug, and the run that finds it is valid without the bug (M1).

Searches for bugs of transactions take some seconds each, so `make long` does them (`cluster/test_zoo_floor.py`); two
of them are here.
"""

from __future__ import annotations

import pytest
from harrow.faults.runs import EXACTLY_ONCE
from harrow.faults.zoo.bug import Bug
from harrow.harness.run_settings import settings_of
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.catalog import ZOO
from harrow.harness.zoo.trial import run_trial
from long_runs import some

QUICK = frozenset({"kafka_9807", "kafka_5376"})
"""Bugs of transactions that the first run of a search shows."""
SLOW = frozenset({"kafka_7415", "kafka_10778"})
"""Bugs that a run shows rarely."""
BUGS = [bug for bug in ZOO if bug.name in QUICK or (bug.options.workload != EXACTLY_ONCE and bug.name not in SLOW)]


@pytest.mark.parametrize("bug", some(BUGS, suite=4), ids=lambda bug: bug.name)
def test_a_directed_search_finds_the_bug_and_its_schedule_repeats_the_run(bug: Bug) -> None:
    trial = run_trial(bug, 7)
    assert trial.found, trial
    assert not trial.false_alarms
    assert trial.schedule is not None
    assert settings_of(trial.schedule).plants == (bug.module,)
    again = run_schedule(trial.schedule)
    assert {name for name, _ in again.anomalies} == set(trial.anomalies)
    assert again.planted[0].startswith(f"{bug.module}: ")
