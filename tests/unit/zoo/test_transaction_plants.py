"""Bugs of transactions and groups: a directed search finds each, and correct brokers are valid in the same run (M1)."""

from __future__ import annotations

import pytest
from harrow.harness.simulation import SimulationResult, run_schedule
from harrow.harness.zoo.bug import plan_directed, unplanted
from harrow.harness.zoo.catalog import bug_named

SEEDS_MOST = 20
"""A search ends with the first seed that shows the bug; most searches end with the seed at which they begin."""
FIRST_SEEDS = {
    "kafka_9807": 1, "kafka_5376": 1, "kafka_6119": 4, "kip_890_part_1": 3_000_001, "kip_890_part_2": 5,
    "kafka_10080": 6, "kafka_17507": 4, "kafka_13636": 2, "kafka_19446": 5,
}  # fmt: skip
WITHOUT_END = frozenset({"not-converged", "stuck-lso", "stuck-group"})
OUTPUT = frozenset({"duplicate-output", "missing-output"})
"""What an aborted read or a lost marker also does to the output."""


def anomalies(result: SimulationResult) -> set[str]:
    return {name for name, _ in result.anomalies}


@pytest.mark.parametrize("name", FIRST_SEEDS)
def test_a_directed_search_finds_the_bug_and_correct_brokers_are_valid_on_its_schedule(
    name: str,
) -> None:
    bug, first = bug_named(name), FIRST_SEEDS[name]
    results = (run_schedule(plan_directed(bug, seed)) for seed in range(first, first + SEEDS_MOST))
    found = next((result for result in results if anomalies(result) & bug.seen_as), None)
    assert found is not None, f"{name}: nothing in {SEEDS_MOST} seeds from {first} on"
    assert anomalies(found) <= bug.seen_as | OUTPUT | WITHOUT_END
    assert [plant.partition(":")[0] for plant in found.planted] == [bug.module]

    without = run_schedule(unplanted(found.schedule))
    assert (without.status, without.anomalies, without.planted) == ("valid", (), ())
