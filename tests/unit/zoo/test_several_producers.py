"""Simulations with several producers, and what no simulation has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.simulation import SimulatedCluster
from harrow.faults.runs import SAME_BROKER
from harrow.harness.run_settings import RunSettings
from harrow.harness.simulation import SimulationOptions, plan_seed, run_schedule
from harrow.harness.simulation.workload import SimulatedWorkload


def test_a_workload_that_no_simulation_has_is_refused() -> None:
    planned = plan_seed(1, SimulationOptions())
    for wrong in ({"producers": 0}, {"reads_from": "anywhere"}):
        with pytest.raises(ConfigError, match="expected a producer, and leader or same-broker"):
            run_schedule(replace(planned, run={**planned.run, **wrong}))


def test_several_producers_share_the_batches() -> None:
    settings = RunSettings(brokers=3, seconds=1.0, batches=30, producers=3, reads_from=SAME_BROKER)
    with SimulatedCluster(brokers=3, seed=1) as cluster:
        cluster.start()
        workload = SimulatedWorkload(cluster, settings)
        assert cluster.run_until(lambda: workload.ready, 10_000)
        workload.begin()
        assert cluster.run_until(lambda: workload.done, 10_000)
        acked = [producer.acked for producer in workload.producers]
        assert len(acked) == 3
        assert all(acked)
        assert sum(acked) == len(workload.offered)
        ends = sum(acked)
        assert cluster.run_until(lambda: sum(workload.consumer.positions.values()) == ends, 10_000)
