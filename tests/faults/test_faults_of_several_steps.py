"""Faults that `advance` from step to step, on a fake system: restarts, crash loops, operations on partitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_system import FakeSystem
from harrow.faults import (
    Fault,
    Schedule,
    ScheduledFault,
    TargetError,
    add_broker,
    crash_during_recovery,
    crash_loop,
    damage_disk,
    failpoint_at_start,
    kill,
    leader,
    move_leader,
    reassign,
    remove_broker,
    rolling_restart,
    slow_start,
    throttle_cpu,
    unclean_election,
    zombie_controller,
)
from harrow.faults.controls import STARTING, DiskPowerLoss
from harrow.faults.failpoint_faults import OF_A_REPLICA, OF_EACH_START
from harrow.faults.fault_rows import Row
from harrow.faults.nemesis import Nemesis
from harrow.faults.spec import TICK_MS
from harrow.faults.system import take_snapshot

LATEST_MS = 400_000


class Run:
    """A nemesis on a fake system, turn by turn."""

    def __init__(self, *faults: Fault, start_turns: int = 0, cap: int = 1, seed: int = 3) -> None:
        self.system = FakeSystem()
        for broker in self.system.brokers.values():
            broker.start_turns = start_turns
        steps = tuple(
            ScheduledFault(id=str(number), fault=fault, trigger="traffic") for number, fault in enumerate(faults, 1)
        )
        self.rows: list[Row] = []
        self.disturbed_most = 0
        self.now_ms = 0
        schedule = Schedule(steps=steps, seed=seed, cap=cap)
        self.nemesis = Nemesis(self.system, schedule, write=self.rows.append)

    def turn(self) -> None:
        self.nemesis.turn(self.now_ms)
        down = [b for b in self.system.brokers.values() if b.state != "running"]
        self.disturbed_most = max(self.disturbed_most, len(down))
        for broker in self.system.brokers.values():
            broker.time_passes()
        self.now_ms += TICK_MS

    def to_the_end(self) -> None:
        while not self.nemesis.over:
            assert self.now_ms < LATEST_MS, self.rows
            self.turn()

    def to_the_point(self) -> str:
        """Run to the end, and return the failpoint that was drawn."""
        self.to_the_end()
        assert self.nemesis.problems == []
        place: str = self.rows[1]["evidence"]["failpoint"]
        return place

    def events(self) -> list[str]:
        return [row["event"] for row in self.rows]


WHOLE = ["inject", "effect", "heal", "healed"]


@pytest.mark.parametrize("kill_them", [False, True])
def test_a_rolling_restart_ends_one_broker_at_a_time(kill_them: bool) -> None:
    run = Run(rolling_restart(kill=kill_them), start_turns=7)
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    assert [broker.incarnation for broker in run.system.brokers.values()] == [2, 2, 2]
    ended = "kill" if kill_them else "terminate"
    assert all(broker.actions == [ended, "start"] for broker in run.system.brokers.values())
    assert run.disturbed_most == 1


def test_a_rolling_restart_waits_until_the_broker_is_in_its_isrs() -> None:
    run = Run(rolling_restart())
    partition = run.system.topics["orders"][0]
    run.system.topics["orders"][0] = replace(partition, isr=(2, 3))
    for _ in range(100):
        run.turn()
    assert [broker.incarnation for broker in run.system.brokers.values()] == [2, 1, 1]
    run.system.topics["orders"][0] = partition
    run.to_the_end()
    assert [broker.incarnation for broker in run.system.brokers.values()] == [2, 2, 2]
    assert run.nemesis.problems == []


def test_a_rolling_restart_that_cannot_go_on_is_a_problem() -> None:
    run = Run(rolling_restart())
    partition = run.system.topics["orders"][0]
    run.system.topics["orders"][0] = replace(partition, isr=(2, 3))
    run.to_the_end()
    assert run.nemesis.problems == ["rolling_restart(all_brokers) did not come to its end in time"]


def test_a_rolling_restart_counts_as_one_disturbed_broker() -> None:
    run = Run(rolling_restart(), kill(3, seconds=1), start_turns=3, cap=2)
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.disturbed_most == 2
    assert run.system.brokers[3].actions.count("terminate") == 1


def test_a_run_that_is_stopped_leaves_the_other_brokers_alone() -> None:
    run = Run(rolling_restart(), start_turns=3)
    run.turn()
    run.nemesis.stop()
    run.to_the_end()
    assert [broker.incarnation for broker in run.system.brokers.values()] == [2, 1, 1]
    assert run.system.undisturbed()


@pytest.mark.parametrize("start_turns", [0, 5, 200])
def test_a_crash_loop_kills_the_broker_again_after_each_start(start_turns: int) -> None:
    run = Run(crash_loop(2, alive_s=(0, 0.3), seconds=2), start_turns=start_turns)
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    kills = run.system.brokers[2].actions.count("kill")
    assert kills >= 5
    assert run.system.brokers[2].incarnation == kills + 1
    assert run.system.undisturbed()


@pytest.mark.parametrize("seed", range(8))
def test_a_broker_that_still_dies_when_its_crash_loop_is_healed_is_started(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A signal takes effect a moment later; until then the broker seems to run."""
    run = Run(crash_loop(2, alive_s=(0, 0.02), seconds=0.5), seed=seed)
    broker = run.system.brokers[2]
    kill_it, dying = broker.kill, list[int]()

    def dies() -> None:
        while dying:
            dying.pop()
            kill_it()

    monkeypatch.setattr(broker, "kill", lambda: dying.append(1))
    monkeypatch.setattr(broker, "time_passes", dies)
    run.to_the_end()
    run.turn()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    assert run.system.undisturbed()


@pytest.mark.parametrize("start_turns", [0, 1, 5, 200])
@pytest.mark.parametrize("crashes", [1, 3])
def test_a_crash_during_recovery_hits_a_broker_that_starts(start_turns: int, crashes: int) -> None:
    run = Run(crash_during_recovery(2, crashes=crashes, seconds=0.1), start_turns=start_turns)
    broker = run.system.brokers[2]
    states: list[str] = []
    kill_it = broker.kill

    def noted() -> None:
        states.append(broker.state)
        kill_it()

    broker.kill = noted  # type: ignore[method-assign]
    run.to_the_end()
    if not start_turns:  # it serves at once, and cannot be hit before
        assert "had no effect" in run.nemesis.problems[0]
    else:
        assert run.nemesis.problems == []
        assert states.count(STARTING) == crashes
        assert run.rows[1]["evidence"]["starts"]["2"]["hits_while_starting"] == crashes
    assert run.system.undisturbed()


@pytest.mark.parametrize(("clean", "first"), [(True, "terminate"), (False, "kill")])
def test_a_clean_crash_during_recovery_kills_only_a_broker_that_starts(clean: bool, first: str) -> None:
    run = Run(crash_during_recovery(2, crashes=2, clean=clean, seconds=0.1), start_turns=3)
    broker = run.system.brokers[2]
    states: list[str] = []
    kill_it = broker.kill

    def noted() -> None:
        states.append(broker.state)
        kill_it()

    broker.kill = noted  # type: ignore[method-assign]
    run.to_the_end()
    assert run.nemesis.problems == []
    ends = [action for action in broker.actions if action in ("terminate", "kill")]
    assert ends[0] == first
    assert states.count(STARTING) == 2
    assert ("running" in states) == (not clean)
    assert run.system.undisturbed()


@pytest.mark.parametrize("start_turns", [1, 5, 200])
def test_a_slow_start_pauses_a_broker_before_it_serves(start_turns: int) -> None:
    run = Run(slow_start(2, seconds=1), start_turns=start_turns)
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    assert run.rows[1]["evidence"]["brokers"]["2"]["state"] == "paused"
    assert run.system.brokers[2].actions[-2:] == ["pause", "resume"]
    assert run.system.undisturbed()


def test_a_moved_leader_is_the_preferred_one_of_a_new_order_that_is_undone() -> None:
    run = Run(move_leader("orders", 0))
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    heir = run.rows[0]["evidence"]["replicas"][0]
    assert heir in (2, 3)
    order = (heir, *(node for node in (1, 2, 3) if node != heir))
    assert run.system.operations == [
        ("reassign", "orders", 0, order),
        ("elect", "orders", 0),
        ("reassign", "orders", 0, (1, 2, 3)),
    ]
    assert run.system.topics["orders"][0].leader == heir


def test_a_reassigned_replica_moves_to_a_broker_without_one_and_back() -> None:
    run = Run(reassign("orders", 0))
    row = run.system.topics["orders"][0]
    run.system.topics["orders"][0] = replace(row, isr=(1, 2), replicas=(1, 2))
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    first, second = run.system.operations
    assert first in (("reassign", "orders", 0, (3, 2)), ("reassign", "orders", 0, (1, 3)))
    assert second == ("reassign", "orders", 0, (1, 2))


def test_a_reassignment_that_is_refused_is_sent_again() -> None:
    run = Run(move_leader("orders", 0))
    refused: list[tuple[int, ...]] = []
    accept = run.system.reassign

    def refuse_once(moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        if refused:
            accept(moves)
        [(_, _, replicas)] = moves
        refused.append(tuple(replicas))

    run.system.reassign = refuse_once  # type: ignore[method-assign]
    run.to_the_end()
    assert run.nemesis.problems == []
    assert refused[0] == refused[1]
    assert run.system.topics["orders"][0].replicas == (1, 2, 3)


def test_a_partition_with_a_replica_on_each_broker_cannot_be_reassigned() -> None:
    run = Run(reassign("orders", 0))
    run.to_the_end()
    assert "start more brokers than its replication factor" in run.nemesis.problems[0]


def test_a_zombie_is_paused_until_another_broker_is_the_controller() -> None:
    run = Run(zombie_controller())
    for _ in range(50):
        run.turn()
    assert run.events() == ["inject"]
    assert run.system.brokers[2].state == "paused"
    run.system.controller = 3
    run.to_the_end()
    assert run.events() == WHOLE
    assert run.rows[1]["evidence"]["controller"] == 3


def test_a_throttled_broker_runs_for_its_share_of_the_time() -> None:
    run = Run(throttle_cpu(2, share=0.3, period_ms=100, seconds=2))
    running = 0
    while not run.nemesis.over:
        run.turn()
        running += run.system.brokers[2].state == "running"
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    turns = run.now_ms / TICK_MS
    assert 0.25 <= running / turns <= 0.35
    assert run.system.brokers[2].actions.count("pause") >= 20
    assert run.system.undisturbed()


@pytest.mark.parametrize(("action", "times"), [("crash", 3), ("error", 1), ("stop", 1), ("delay", 1)])
def test_starts_with_an_armed_failpoint_are_counted(action: str, times: int) -> None:
    fault = failpoint_at_start("recovery.after-logs", 2, action, times=times, seconds=0.1)
    run = Run(fault, start_turns=3)
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    effect = run.rows[1]["evidence"]
    assert effect["starts"] == {"2": {"hits": times, "serves_without_a_hit": False}}
    starts_again = action in ("crash", "error")
    assert run.system.brokers[2].incarnation == 1 + times + starts_again
    assert run.system.undisturbed()


def test_a_start_that_reaches_no_armed_failpoint_is_a_problem_and_is_healed() -> None:
    run = Run(failpoint_at_start("recovery.before-split", 2, seconds=0.1))
    run.system.brokers[2].reaches_places = False
    run.to_the_end()
    [problem] = run.nemesis.problems
    assert "'serves_without_a_hit': True" in problem
    assert run.system.undisturbed()


def test_power_is_lost_at_each_crash_of_a_start() -> None:
    fault = failpoint_at_start("recovery.after-segment", 2, times=2, power_loss=True, seconds=0.1)
    run = Run(fault)
    run.to_the_end()
    assert run.nemesis.problems == []
    seeds = [cut.seed for cut in run.system.brokers[2].own_disk.changes if isinstance(cut, DiskPowerLoss)]
    assert len(set(seeds)) == 3
    assert run.system.brokers[2].incarnation == 4


def test_the_seed_draws_a_place_of_recovery() -> None:
    fault = failpoint_at_start(None, 2)
    places = {Run(fault, seed=seed).to_the_point() for seed in range(40)}
    assert places == {*OF_EACH_START, *OF_A_REPLICA}


def test_an_unclean_election_kills_the_isr_when_the_follower_is_behind_and_asks_for_it() -> None:
    run = Run(unclean_election("orders", 0, behind_s=0.2, seconds=0.1), cap=3, start_turns=2)
    run.turn()
    dead = [node for node, broker in run.system.brokers.items() if broker.state == "dead"]
    assert dead == [run.nemesis.schedule.steps[0].details["heir"]]  # type: ignore[index]
    assert 1 not in dead
    for _ in range(50):
        run.turn()
    assert [broker.state for broker in run.system.brokers.values()].count("dead") == 1
    others = tuple(node for node in run.system.nodes if node not in dead)
    row = run.system.topics["orders"][0]
    run.system.topics["orders"][0] = replace(row, isr=others)
    run.system.dead_are_gone = True
    while "effect" not in run.events():
        run.turn()
    evidence = run.rows[-1]["evidence"]
    assert (evidence["leader"], evidence["last_isr"]) == (dead[0], list(others))
    assert run.system.operations == [("elect unclean", "orders", 0)]
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.system.undisturbed()


def test_an_unclean_election_does_nothing_while_the_follower_is_in_the_isr() -> None:
    run = Run(unclean_election("orders", 0, behind_s=0, seconds=0.1), cap=3)
    run.to_the_end()
    [problem] = run.nemesis.problems
    assert "had no effect" in problem
    assert run.system.operations == []
    assert run.system.undisturbed()


def test_an_added_broker_takes_replicas_over_and_leaves_without_any() -> None:
    run = Run(add_broker("orders", seconds=0.1))
    before = dict(run.system.topics["orders"])
    run.turn()
    added = run.system.brokers[4]
    while "effect" not in run.events():
        run.turn()
    moved = [n for n, row in run.system.topics["orders"].items() if 4 in row.replicas]
    assert len(moved) == 2
    extra = replace(before[0], replicas=(1, 2, 4), isr=(1, 2, 4))  # created while the broker is there
    run.system.topics["later"] = {0: extra}
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.events() == WHOLE
    assert added.actions == ["terminate"]
    assert run.system.nodes == (1, 2, 3)
    after = run.system.topics["orders"]
    assert {n: row.replicas for n, row in after.items()} == {n: row.replicas for n, row in before.items()}
    assert run.system.topics["later"][0].replicas == (1, 2, 3)


def test_an_added_broker_that_never_registers_is_a_problem_and_leaves() -> None:
    run = Run(add_broker("orders", seconds=0.1))
    run.turn()
    run.system.dead_are_gone = True
    run.system.brokers[4].state = STARTING
    run.system.brokers[4].turns_left = 10**6
    run.to_the_end()
    [problem] = run.nemesis.problems
    assert "had no effect" in problem
    assert run.system.nodes == (1, 2, 3)


@pytest.mark.parametrize("brokers", [3, 4])
def test_a_removed_broker_has_no_replica_when_it_ends_and_gets_them_back(brokers: int) -> None:
    run = Run(remove_broker(2, seconds=0.1), start_turns=2)
    if brokers == 4:
        run.system.add_broker()
    before = {n: row.replicas for n, row in run.system.topics["orders"].items()}
    while "effect" not in run.events():
        run.turn()
        ended = run.system.brokers[2].state == "dead"
        rows = run.system.topics["orders"].values()
        assert not ended or all(2 not in row.replicas for row in rows)
    assert {len(row.replicas) for row in run.system.topics["orders"].values()} == {brokers - 1}
    run.to_the_end()
    assert run.nemesis.problems == []
    assert run.system.brokers[2].actions == ["terminate", "start"]
    assert {n: row.replicas for n, row in run.system.topics["orders"].items()} == before


def test_a_disk_is_damaged_only_where_other_replicas_have_the_records() -> None:
    system = FakeSystem()
    row = system.topics["orders"][0]
    system.topics["orders"] = {
        0: replace(row, isr=(1, 2)),  # broker 1 is one of two good copies of three
        1: replace(row, isr=(1, 2, 3)),
        2: replace(row, isr=(1,), replicas=(1,)),
        3: replace(row, isr=(1, 2), replicas=(1, 2)),
    }
    injection = damage_disk("bit-flip", 1).resolve(take_snapshot(system), random.Random(3))
    assert sorted(injection.details["partitions"]) == ["orders-1", "orders-3"]
    disturbed = take_snapshot(system, frozenset({2}))
    with pytest.raises(TargetError, match="replication factor of 3"):
        damage_disk("bit-flip", 1).resolve(disturbed, random.Random(3))


def test_a_broker_with_damaged_files_is_healed_when_it_is_in_the_isr() -> None:
    system = FakeSystem()
    fault = damage_disk("bit-flip", leader("orders", 0))
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    fault.inject(system, injection)
    row = system.topics["orders"][0]
    system.topics["orders"][0] = replace(row, isr=(2, 3), leader=2)
    fault.heal(system, injection)
    assert not fault.probe_healed(system, injection).proved
    system.topics["orders"][0] = row
    assert fault.probe_healed(system, injection).proved
