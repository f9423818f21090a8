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
    failpoint_at_start,
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
    remove_broker,
    rolling_restart,
    skew_clock,
    slow_start,
    strobe_clock,
    throttle_cpu,
    unclean_election,
    zombie_controller,
)
from harrow.faults.failpoint_faults import OF_A_REPLICA, OF_EACH_START
from harrow.harness.simulation import SimulationOptions, plan_seed, run_schedule
from harrow.harness.simulation.run import SimulationResult
from long_runs import some

FAULTS: tuple[Fault, ...] = (
    rolling_restart(),
    crash_loop(leader("orders"), alive_s=(0, 0.4), seconds=2),
    crash_during_recovery(leader("orders"), crashes=2),
    slow_start(one),
    failpoint_at_start("recovery.after-segment", leader("orders"), times=2),
    failpoint_at_start(None, one),
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
    remove_broker(leader("orders")),
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
    *faults: Fault, seed: int = 4, workload: str = "orders", seconds: float = 20, power_loss: bool = False
) -> SimulationResult:
    options = SimulationOptions(brokers=5, seconds=seconds, workload=workload, power_loss=power_loss)
    steps = tuple(ScheduledFault(id=str(number), fault=fault) for number, fault in enumerate(faults, 1))
    return run_schedule(replace(plan_seed(seed, options), steps=steps, cap=5))


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_takes_effect_and_loses_nothing(fault: Fault) -> None:
    done = run(fault, seconds=10)
    assert done.status == "valid", (done.anomalies, done.reasons)
    assert done.kinds == {fault.kind: 1}


def test_an_unclean_election_elects_a_replica_outside_the_isr_the_same_way_each_time() -> None:
    done = run(unclean_election("orders", 0), seed=1)
    assert done.kinds == {"unclean_election": 1}
    assert done.status == "invalid", "the workload `orders` allows no loss"
    recorded = Schedule.from_json(done.schedule.to_json())
    assert run_schedule(recorded).trace_sha256 == done.trace_sha256


@pytest.mark.parametrize("start", some(range(0, len(FAULTS), 6), suite=2))
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
    "recovery.before-split": "no simulated cleaner writes such segments",
    "recovery.before-deleted-folder": "no broker ends while it deletes a replica",
    "recovery.before-leftover": "no broker ends while it deletes segments",
    "recovery.before-swap-rename": "no broker ends in the swap of a compaction",
    "recovery.before-stray-index": "no broker ends between the removals of a segment's files",
    "recovery.before-index-rebuild": "an index is damaged by damage_disk only",
    "recovery.before-later-segment": "logs have one segment, and nothing is damaged",
    "recovery.before-truncation": "nothing is damaged",
    "recovery.before-start-over": "no log loses all its records",
    "recovery.before-gap-closing": "logs have one segment",
}
"""Failpoints that these simulations do not reach; `test_real_failpoints.py` and `unit/storage/` do."""


@pytest.mark.parametrize("place", some([*OF_EACH_START, *OF_A_REPLICA], suite=4))
def test_two_crashes_of_starts_with_power_losses_lose_nothing(place: str) -> None:
    fault = failpoint_at_start(place, leader("orders"), times=2, power_loss=True)
    done = run(fault, power_loss=True, seconds=6)
    assert done.status == "valid", (done.anomalies, done.reasons)
    assert done.kinds == {fault.kind: 1}


def test_runs_reach_every_failpoint(places: set[str]) -> None:
    run(expire_session(one), kill(controller()), reassign("orders"), seed=2)
    run(rolling_restart(), isolate(leader("orders"), seconds=3), seed=2)
    run(rolling_restart(), isolate(leader("sink"), seconds=3), seed=2, workload="exactly-once", seconds=8)
    assert set(DECLARED) - places <= set(ELSEWHERE)
