"""Bugs of the zoo are found on real processes by schedules of events, and never without the bug (M1).

Each is a trial as those of `harrow zoo --real`. Their faults are kills, failpoints, power losses and pauses.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.harness.zoo.catalog import bug_named
from harrow.harness.zoo.directed import settings_on_processes
from harrow.harness.zoo.real import RealRuns
from harrow.harness.zoo.trial import EVENTS, run_trial
from long_runs import long_run

BUDGET_S = 90.0


@long_run
@pytest.mark.parametrize("name", ["kip_101", "kafka_7128", "kip_966", "kafka_13091"])
def test_a_bug_is_found_on_real_processes_and_no_run_without_it_has_an_anomaly(name: str, tmp_path: Path) -> None:
    bug = bug_named(name)
    where = RealRuns(tmp_path / "runs", name, settings_on_processes(bug))
    trial = run_trial(bug, 100, EVENTS, budget_s=BUDGET_S, where=where)
    assert trial.found, trial
    assert not trial.false_alarms
