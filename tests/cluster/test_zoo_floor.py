"""Each bug of the zoo is found in nearly every trial: a change that makes a search blind to one of them fails (M1)."""

from __future__ import annotations

import pytest
from harrow.faults.zoo.bug import Bug
from harrow.harness.zoo.catalog import ZOO
from harrow.harness.zoo.trial import run_trial
from long_runs import long_run

TRIALS, FOUND_LEAST = 3, 2


@long_run
@pytest.mark.parametrize("bug", ZOO, ids=lambda bug: bug.name)
def test_a_bug_is_found_and_no_run_without_it_has_an_anomaly(bug: Bug) -> None:
    trials = [run_trial(bug, 100 + number) for number in range(TRIALS)]
    found = [trial for trial in trials if trial.found]
    assert len(found) >= FOUND_LEAST, trials
    assert not [alarm for trial in trials for alarm in trial.false_alarms]
