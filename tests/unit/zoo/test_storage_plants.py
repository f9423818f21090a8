"""Each planted bug of logs, disks and reads is found by a directed run, and the same run without it is valid."""

from __future__ import annotations

import pytest
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.bug import Bug, plan_directed, unplanted
from harrow.harness.zoo.storage import BUGS

SEEDS = {"kip_966": 1, "kafka_10778": 3, "kafka_7866": 1}
"""A seed of each bug whose first run shows it."""


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_directed_run_shows_the_bug_and_without_the_bug_it_is_valid(bug: Bug) -> None:
    schedule = plan_directed(bug, SEEDS[bug.name])
    found = run_schedule(schedule)
    assert {name for name, _ in found.anomalies} & bug.seen_as, found.anomalies
    assert bug.module in found.planted[0]
    without = run_schedule(unplanted(schedule))
    assert (without.status, without.anomalies) == ("valid", ()), without.reasons
