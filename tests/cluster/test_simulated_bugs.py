"""Bugs of the zoo in simulations: random faults find them, and the same seeds without the bug are valid (M1, F1)."""

from __future__ import annotations

from dataclasses import replace

from harrow.harness.simulation import SimulationOptions, SimulationResult, run_schedule, run_seed

KAFKA_5494 = "harrow.faults.zoo.kafka_5494"
LOST_RESPONSES = SimulationOptions(
    seconds=4.0, resends=True, weights={"reset": 2, "slow_link": 2, "pause": 1}, plants=(KAFKA_5494,)
)
"""Connections are reset while several batches are in flight. No broker restarts: a restart loses the remembered
batches of a correct broker, too."""
SEEDS = range(1, 41)


def anomalies(result: SimulationResult) -> set[str]:
    return {name for name, _ in result.anomalies}


def test_kafka_5494_is_found_as_duplicates_and_correct_brokers_are_valid_on_the_same_schedule() -> None:
    results = (run_seed(seed, LOST_RESPONSES) for seed in SEEDS)
    found = next((result for result in results if result.status == "invalid"), None)
    assert found is not None, f"no duplicate in seeds {SEEDS}"
    assert "duplicate" in anomalies(found)
    assert anomalies(found) <= {"duplicate", "nonmonotonic-send"}
    assert [bug.partition(":")[0] for bug in found.planted] == [KAFKA_5494]

    again = run_schedule(found.schedule)
    assert (again.trace_sha256, again.anomalies) == (found.trace_sha256, found.anomalies)

    unplanted = run_schedule(replace(found.schedule, run={**found.schedule.run, "plants": []}))
    assert (unplanted.status, unplanted.anomalies, unplanted.planted) == ("valid", (), ())


def test_the_same_seeds_without_the_bug_are_valid() -> None:
    for seed in range(1, 9):
        result = run_seed(seed, replace(LOST_RESPONSES, plants=()))
        assert result.status == "valid", (seed, result.anomalies, result.reasons)
