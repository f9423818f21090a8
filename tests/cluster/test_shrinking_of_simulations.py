"""A failing simulation is shrunk exactly: the small schedule fails each time, byte for byte (K9)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from harrow.cluster.errors import ConfigError
from harrow.faults import Schedule
from harrow.faults.runs import EXACTLY_ONCE, ORDERS
from harrow.harness.commands import cli
from harrow.harness.search.simulated import shrink_simulated, smaller_simulations
from harrow.harness.simulation import SimulationOptions, SimulationResult, plan_seed, run_schedule, run_seed
from long_runs import long_run

WEAK = SimulationOptions(acks=1, weights={"isolate": 3, "kill": 2}, seconds=5.0, batches=60)


@pytest.fixture(scope="module")
def failed() -> SimulationResult:
    """The first seed in which acks=1 loses a record."""
    results = (run_seed(seed, WEAK) for seed in range(12))
    return next(result for result in results if result.status == "invalid")


@long_run
def test_a_lost_write_is_shrunk_and_repeats_exactly(failed: SimulationResult, tmp_path: Path) -> None:
    path = tmp_path / "seed.json"
    path.write_text(failed.schedule.to_json(), encoding="utf-8")
    result = CliRunner().invoke(cli, ["shrink", str(path), "--runs", "40"])
    assert result.exit_code == 0, result.output
    small = Schedule.from_json((tmp_path / "seed.shrunk.json").read_text(encoding="utf-8"))
    assert 0 < len(small.steps) <= min(5, len(failed.schedule.steps))
    again = [run_schedule(small) for _ in range(2)]
    assert {run.status for run in again} == {"invalid"}
    assert len({run.trace_sha256 for run in again}) == 1
    names: dict[str, object] = {}
    text = result.output.partition("\n\n")[2]
    exec(text, names)
    test = names["test_no_" + again[0].anomalies[0][0].replace("-", "_")]
    assert callable(test)
    with pytest.raises(AssertionError, match=r"lost-write|inconsistent-offsets"):
        test()


def test_a_valid_schedule_has_nothing_to_shrink() -> None:
    planned = plan_seed(1, replace(WEAK, acks=-1, seconds=2.0, batches=10))
    with pytest.raises(ConfigError, match=r"is (valid|unknown) in simulation"):
        shrink_simulated(planned)


def test_a_run_becomes_smaller_in_small_steps() -> None:
    planned = plan_seed(1, SimulationOptions(workload=EXACTLY_ONCE))
    smaller = [given.run for given in smaller_simulations(planned)]
    assert smaller[0]["workload"] == ORDERS
    assert {len(set(run["operations"])) for run in smaller[1:]} <= {
        len(set(planned.run["operations"])),
        len(set(planned.run["operations"])) - 1,
    }
    assert any(run["batches"] < planned.run["batches"] for run in smaller)
    assert any(run["partitions"] < planned.run["partitions"] for run in smaller)
