"""One schedule on both backends: recorded in a simulation, replayed on real processes, and the other way round (K9)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from harrow import Harrow, delay_request, duplicate_request, isolate, kill, leader, lose_request, throttle
from harrow.cluster.errors import ConfigError
from harrow.faults import Schedule, ScheduledFault
from harrow.harness.simulation import SimulationOptions, run_schedule, run_seed
from harrow.harness.workloads.orders import Workload
from waiting import until

SMALL = SimulationOptions(brokers=3, seconds=3.0, batches=40, weights={"kill": 3, "pause": 3, "cut": 2, "reset": 1})


def hits(schedule: Schedule) -> list[tuple[str, str, tuple[int, ...] | None, int | None, Any]]:
    """What was done: step, fault, brokers, duration, details."""
    return [(step.id, step.fault.kind, step.nodes, step.duration_ms, step.details) for step in schedule.steps]


def run(harrow: Harrow, schedule: Schedule | None, *faults: Any) -> Schedule:
    """Let a schedule, or faults in turn, happen under traffic; what was recorded."""
    topic = harrow.topic("orders", partitions=2)
    with Workload(harrow, topic), harrow.chaos(*faults, schedule=schedule) as chaos:
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
    return Schedule.from_json((harrow.folder / "schedule.json").read_text())


def test_simulated_schedule_affects_the_same_real_brokers(harrow: Harrow) -> None:
    simulated = run_seed(5, SMALL)
    assert simulated.status == "valid", simulated.anomalies
    file = simulated.schedule.to_json()
    real = run(harrow, Schedule.from_json(file))
    assert hits(real) == hits(simulated.schedule)
    assert len(real.steps) > 2
    assert real.run == simulated.schedule.run
    assert [broker.state for broker in harrow.cluster.brokers.values()] == ["running"] * 3


def test_a_schedule_of_real_processes_replays_in_a_simulation_byte_for_byte(harrow: Harrow) -> None:
    real = run(harrow, None, kill(leader("orders"), seconds=1), isolate(2, seconds=1))
    simulated = run_schedule(real)
    assert simulated.status == "valid", (simulated.anomalies, simulated.reasons)
    assert hits(simulated.schedule) == hits(real)
    assert simulated.kinds == {"isolate": 1, "kill": 1}
    assert run_schedule(real).trace_sha256 == simulated.trace_sha256
    assert run_schedule(simulated.schedule).trace_sha256 == simulated.trace_sha256


def test_faults_of_requests_and_bandwidth_act_in_a_simulation_and_repeat() -> None:
    faults = (
        lose_request("Produce", nth=3),
        lose_request("Produce", nth=2, silent=True),
        delay_request("Produce", delay_ms=400),
        duplicate_request("Produce", nth=2),
        throttle(leader("orders"), bytes_per_s=20_000, seconds=0.5),
    )
    steps = tuple(ScheduledFault(id=str(number), fault=fault) for number, fault in enumerate(faults, 1))
    schedule = replace(run_seed(5, SMALL).schedule, steps=steps)
    done = run_schedule(schedule)
    assert done.status == "valid", (done.anomalies, done.reasons)
    assert done.kinds == Counter(fault.kind for fault in faults)
    assert run_schedule(done.schedule).trace_sha256 == done.trace_sha256


def test_a_schedule_of_more_brokers_than_the_cluster_has_is_refused(harrow: Harrow) -> None:
    step = ScheduledFault(id="1", fault=kill(leader("orders")), nodes=(4,), duration_ms=100)
    large = Schedule(steps=(step,))
    with pytest.raises(ConfigError, match="at least"):
        harrow.chaos(schedule=large)
