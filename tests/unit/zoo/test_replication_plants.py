"""The directed search for each bug of replication: a run that finds it, and the same run without the bug."""

from __future__ import annotations

import pytest
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.bug import plan_directed, unplanted
from harrow.harness.zoo.catalog import bug_named

SEEDS = {
    "kip_101_power_loss": 5000,
    "kip_279": 5002,
    "kip_320": 5001,
    "kafka_7128": 5003,
    "kafka_7415": 7022,
    "kip_497": 5000,
    "kafka_6082": 5000,
}
"""A seed of the directed search that shows the bug."""
FOLLOWS = frozenset(
    {
        "lost-write",
        "replica-divergence",
        "epoch-regression",
        "inconsistent-offsets",
        "nonmonotonic-send",
        "offset-out-of-range",
        "not-converged",
    }
)
"""What a lost record or a difference of logs brings with it: offsets are given twice, readers were beyond the end."""


@pytest.mark.parametrize(("name", "seed"), SEEDS.items())
def test_the_directed_run_of_this_seed_shows_the_bug_and_is_valid_without_it(
    name: str, seed: int
) -> None:
    bug = bug_named(name)
    schedule = plan_directed(bug, seed)
    found = run_schedule(schedule)
    anomalies = {anomaly for anomaly, _ in found.anomalies}
    assert anomalies & bug.seen_as, found.anomalies
    assert anomalies <= bug.seen_as | FOLLOWS, found.anomalies
    assert found.planted
    assert found.planted[0].startswith(f"{bug.module}: ")
    without = run_schedule(unplanted(schedule))
    assert (without.status, without.anomalies) == ("valid", ())
