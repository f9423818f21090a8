"""Random kills, isolations, one-way cuts, resets and registry outages: nothing acknowledged is lost (H4, D4, D6).

Whole clusters on the virtual clock. acks=all, min.insync.replicas=2 and clean elections; an idempotent producer sends
again until it has a response. The oracle judges the clients' history and every replica's log.
"""

from __future__ import annotations

import pytest
from harrow.harness.simulation import SimulationOptions, run_seed

OPTIONS = SimulationOptions(
    seconds=4.0,
    batches=45,
    weights={"kill": 4, "isolate": 4, "cut": 4, "reset": 3, "pause_registry": 2, "restart_registry": 2},
)


@pytest.mark.parametrize("seed", range(501, 513))
def test_random_faults_lose_no_acknowledged_record_and_replicas_agree(seed: int) -> None:
    result = run_seed(seed, OPTIONS)
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert result.acknowledged > 50
    assert sum(result.kinds.values()) > 0
