"""Restarts, partitions, operations, damage, clocks and processor time in simulations: valid, healed, and repeatable."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harrow.cluster.host.knobs.failpoints import RealFailpoints
from harrow.cluster.host.seam.failpoints import DECLARED
from harrow.faults import (
    Fault,
    Schedule,
    ScheduledFault,
    all_brokers,
    bridge,
    controller,
    crash_during_recovery,
    crash_loop,
    damage_disk,
    disconnect,
    elect_controller,
    expire_session,
    follower,
    freeze_clock,
    half_open,
    halves,
    isolate,
    jump_clock,
    kill,
    leader,
    majorities_ring,
    move_leader,
    one,
    reassign,
    registry,
    rolling_restart,
    skew_clock,
    slow_start,
    strobe_clock,
    throttle_cpu,
    zombie_controller,
)
from harrow.harness.simulation import SimulationOptions, plan_seed, run_schedule
from harrow.harness.simulation.run import SimulationResult

FAULTS: tuple[Fault, ...] = (
    rolling_restart(),
    crash_loop(leader("orders"), alive_s=(0, 0.4), seconds=2),
    crash_during_recovery(leader("orders"), crashes=2),
    slow_start(one),
    disconnect(leader("orders", 0), follower("orders", 0)),
    disconnect(controller(), registry()),
    isolate(registry(), seconds=1),
    halves(registry_side="smaller", clients=True),
    bridge(),
    majorities_ring(),
    half_open(leader("orders")),
    elect_controller(),
    zombie_controller(),
    expire_session(leader("orders")),
    move_leader("orders", 0),
    reassign("orders", 1),
    damage_disk("short-write", leader("orders")),
    damage_disk("corrupt-checkpoint", one, seconds=3),
    damage_disk(None, one),
    jump_clock(all_brokers),
    skew_clock(leader("orders")),
    freeze_clock(leader("orders")),
    strobe_clock(leader("orders")),
    throttle_cpu(leader("orders")),
)


def run(
    *faults: Fault, seed: int = 4, workload: str = "orders", seconds: float = 20
) -> SimulationResult:
    options = SimulationOptions(brokers=5, seconds=seconds, workload=workload)
    steps = tuple(
        ScheduledFault(id=str(number), fault=fault) for number, fault in enumerate(faults, 1)
    )
    return run_schedule(replace(plan_seed(seed, options), steps=steps, cap=5))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_takes_effect_and_loses_nothing(fault: Fault) -> None:
    done = run(fault)
    assert done.status == "valid", (done.anomalies, done.reasons)
    assert done.kinds == {fault.kind: 1}


@pytest.mark.parametrize("start", range(0, len(FAULTS), 6))
def test_a_replay_of_faults_in_turn_is_the_same_byte_for_byte(start: int) -> None:
    done = run(*FAULTS[start : start + 6], seconds=60)
    assert done.status == "valid", (done.anomalies, done.reasons)
    recorded = Schedule.from_json(done.schedule.to_json())
    assert run_schedule(recorded).trace_sha256 == done.trace_sha256


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The failpoints that code reaches."""
    reached: set[str] = set()
    hit = RealFailpoints.hit

    def noted(self: RealFailpoints, name: str) -> None:
        reached.add(name)
        hit(self, name)

    monkeypatch.setattr(RealFailpoints, "hit", noted)
    return reached


ELSEWHERE = {
    "log.before-segment-removal": "only seeds with DeleteRecords and small segments do",
    "controller.before-topic-removal": "no simulated client deletes a topic",
    "group.before-offsets": "simulated jobs commit in transactions",
    "group.after-offsets": "simulated jobs commit in transactions",
}
"""Failpoints that these simulations do not reach; `test_real_failpoints.py` does."""


def test_runs_reach_every_failpoint(places: set[str]) -> None:
    run(expire_session(one), kill(controller()), reassign("orders"), seed=2)
    run(rolling_restart(), isolate(leader("orders"), seconds=3), seed=2)
    run(
        rolling_restart(),
        isolate(leader("sink"), seconds=3),
        seed=2,
        workload="exactly-once",
        seconds=8,
    )
    assert set(DECLARED) - places <= set(ELSEWHERE)
