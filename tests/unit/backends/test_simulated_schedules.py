"""Where the faults of a simulated test are placed: anywhere in the traffic of their block, and not behind it."""

from __future__ import annotations

import pytest
from harrow.faults import kill, leader, pause
from harrow.faults.planning import in_turn
from harrow.harness.backends.simulated.process import SimulatedProcess
from harrow.harness.backends.simulated.source import SimulatedClusters

WINDOW_MS = 300


@pytest.mark.parametrize("seed", range(30))
def test_faults_begin_within_the_traffic_of_a_run_without_faults(seed: int) -> None:
    process = SimulatedProcess(seed)
    process.windows_ms = [WINDOW_MS]
    planned = in_turn([kill(leader("orders")), pause(leader("orders")), kill(1)], seed)
    placed = SimulatedClusters(process).spread(planned, 0, seed)
    assert [step.fault for step in placed.steps] == [step.fault for step in planned.steps]
    assert sum(step.at_ms for step in placed.steps) <= WINDOW_MS
    assert SimulatedClusters(process).spread(planned, 0, seed) == placed
    assert SimulatedClusters(process).spread(planned, 1, seed) == planned, "a block of unknown length"
