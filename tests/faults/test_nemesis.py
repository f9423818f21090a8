"""The nemesis on a fake cluster and a clock by hand: first traffic, the cap, proofs, rows, and always healed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_system import FakeBroker, FakeSystem
from harrow.cluster.errors import ConfigError
from harrow.faults import (
    BackgroundNemesis,
    CapabilityError,
    Fault,
    Nemesis,
    NemesisError,
    Schedule,
    ScheduledFault,
    controller,
    cut,
    group_coordinator,
    isolate,
    kill,
    leader,
    lose_response,
    majority,
    one,
    pause,
    pause_registry,
    power_loss,
    restart,
    restart_registry,
    terminate,
    txn_coordinator,
)
from harrow.faults.bounds import EFFECT_TIMEOUT_MS, FIRST_TRAFFIC_TIMEOUT_MS, HEAL_TIMEOUT_MS
from harrow.faults.controls import DiskPowerLoss
from harrow.faults.planning import in_turn
from harrow.faults.spec import TICK_MS
from harrow.faults.targets import Target

SHORT = 0.01
LONG_MS = 300_000


def schedule(*faults: Fault, **more: Any) -> Schedule:
    steps = (ScheduledFault(id=str(n), fault=fault, **more) for n, fault in enumerate(faults, 1))
    return Schedule(steps=tuple(steps), seed=5)


class Run:
    """A nemesis that a test drives."""

    def __init__(self, system: FakeSystem, plan: Schedule, **more: Any) -> None:
        self.system = system
        self.now_ms = 1_000
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.nemesis = Nemesis(system, plan, write=lambda row: self.rows.append((self.now_ms, row)), **more)

    def turns(self, until_ms: int = LONG_MS) -> Run:
        """Take turns until it is over, or until a time."""
        while self.now_ms < until_ms:
            again = self.nemesis.turn(self.now_ms)
            if again is None:
                break
            assert again > self.now_ms
            self.now_ms = again
        return self

    def until(self, event: str, count: int = 1) -> Run:
        """Take turns until so many rows of an event were written."""
        while self.events.count(event) < count:
            again = self.nemesis.turn(self.now_ms)
            assert again is not None, f"over without {count} {event}"
            self.now_ms = again
        return self

    @property
    def events(self) -> list[str]:
        return [row["event"] for _, row in self.rows]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [row for _, row in self.rows if row["event"] == event]


def test_faults_come_in_turn_each_proved_and_healed() -> None:
    plan = schedule(
        kill(leader("orders", 0), seconds=SHORT), pause(controller(), seconds=SHORT), isolate(one, seconds=SHORT)
    )
    run = Run(FakeSystem(), plan).turns()
    assert run.nemesis.over
    assert run.nemesis.problems == []
    assert run.system.undisturbed()
    assert run.events == ["inject", "effect", "heal", "healed"] * 3
    first = run.rows[0][1]
    assert (first["id"], first["fault"], first["targets"]) == ("1", "kill", [1])
    assert first["label"] == "kill(leader('orders', 0), seconds=0.01)"
    assert run.nemesis.effects == 3
    assert run.nemesis.turn(run.now_ms) is None


def test_a_fault_lasts_from_its_effect_for_its_duration() -> None:
    run = Run(FakeSystem(), schedule(pause(one, seconds=2.0))).turns()
    times = {row["event"]: at_ms for at_ms, row in run.rows}
    assert 2_000 <= times["heal"] - times["effect"] <= 2_000 + TICK_MS


def test_the_first_fault_waits_for_the_first_traffic() -> None:
    system = FakeSystem()
    system.traffic = False
    run = Run(system, schedule(kill(one, seconds=SHORT))).turns(until_ms=60_000)
    assert run.events == []
    assert system.asked_for_traffic > 5
    system.traffic = True
    assert run.turns().events[0] == "inject"


def test_without_traffic_nothing_fires_and_the_run_fails() -> None:
    system = FakeSystem()
    system.traffic = False
    run = Run(system, schedule(kill(one)))
    run.nemesis.finish(run.now_ms)
    run.turns()
    assert "kill(one) never fired: no traffic was detected in 0 s" in run.nemesis.problems[0]
    assert run.events == ["skipped"]


def test_first_traffic_that_never_comes_ends_the_run_so_that_running_ends() -> None:
    system = FakeSystem()
    system.traffic = False
    run = Run(system, schedule(kill(one)))
    run.turns(until_ms=FIRST_TRAFFIC_TIMEOUT_MS + 10_000)
    assert run.nemesis.over
    assert "kill(one) never fired: no traffic was detected in 120 s" in run.nemesis.problems[0]


def test_stop_during_a_fault_heals_it() -> None:
    run = Run(FakeSystem(), schedule(pause(one, seconds=600))).until("effect")
    assert not run.system.undisturbed()
    run.nemesis.stop()
    run.turns()
    assert run.system.undisturbed()
    assert run.events == ["inject", "effect", "heal", "healed"]
    assert run.nemesis.problems == []


def test_never_more_brokers_are_disturbed_than_the_cap() -> None:
    together = Schedule(
        steps=tuple(ScheduledFault(id=str(n), fault=kill(n, seconds=SHORT), trigger="traffic") for n in (1, 2, 3))
    )
    run = Run(FakeSystem(), together).turns()
    down = most = 0
    for event in run.events:
        down += {"inject": 1, "healed": -1}.get(event, 0)
        most = max(most, down)
    assert most == 1
    assert run.events.count("healed") == 3


def test_step_beyond_the_cap_is_skipped_with_the_reason() -> None:
    run = Run(FakeSystem(), schedule(kill(majority))).turns()
    assert run.events == ["skipped"]
    assert "more brokers than the cap, 1" in run.nemesis.problems[0]
    optional = Run(FakeSystem(), schedule(kill(majority), required=False)).turns()
    assert (optional.events, optional.nemesis.problems) == (["skipped"], [])
    allowed = Run(FakeSystem(), replace(schedule(kill(majority, seconds=SHORT)), cap=2)).turns()
    assert allowed.events == ["inject", "effect", "heal", "healed"]


def test_a_fault_without_effect_fails_the_run_and_is_healed() -> None:
    system = FakeSystem()
    for broker in system.brokers.values():
        broker.own_links.state.held = 0
    run = Run(system, schedule(isolate(one, seconds=SHORT))).turns()
    assert "had no effect" in run.nemesis.problems[0]
    assert run.now_ms > EFFECT_TIMEOUT_MS
    assert run.events == ["inject", "heal", "healed"]
    assert system.undisturbed()


def test_a_cut_of_one_idle_link_may_pass_without_effect() -> None:
    system = FakeSystem()
    for broker in system.brokers.values():
        broker.own_links.state.held = 0
    plan = schedule(cut(one, seconds=0.5, peers="any"), required=False)
    run = Run(system, plan).turns()
    assert run.events == ["inject", "heal", "healed"]
    assert run.nemesis.problems == []
    assert 500 <= run.now_ms - 1_000 < 600
    assert (
        "had no effect"
        in Run(system, replace(plan, steps=tuple(replace(step, required=True) for step in plan.steps)))
        .turns()
        .nemesis.problems[0]
    )


def test_lost_response_without_traffic_is_disarmed_and_reported() -> None:
    run = Run(FakeSystem(), schedule(lose_response("Produce"))).until("inject")
    assert all(broker.own_rules.armed for broker in run.system.brokers.values())
    run.nemesis.stop()
    run.turns()
    assert "no effect" in run.nemesis.problems[0]
    assert run.system.undisturbed()


def test_step_waits_until_a_broker_has_its_role() -> None:
    system = FakeSystem()
    system.controller = None
    run = Run(system, schedule(kill(controller(), seconds=SHORT))).turns(until_ms=5_000)
    assert run.events == []
    system.controller = 3
    assert run.turns().rows[0][1]["targets"] == [3]


@pytest.mark.parametrize(
    ("kind", "target"),
    [("consumer group", group_coordinator("billing")), ("transactional id", txn_coordinator("billing"))],
    ids=str,
)
def test_step_waits_until_what_its_coordinator_coordinates_exists(kind: str, target: Target) -> None:
    system = FakeSystem()
    system.topics = {
        **system.topics,
        **dict.fromkeys(("__consumer_offsets", "__transaction_state"), system.topics["orders"]),
    }
    system.names = {kind: {"stock"}}
    run = Run(system, schedule(kill(target, seconds=SHORT))).turns(until_ms=5_000)
    assert run.events == []
    system.names[kind].add("billing")
    assert run.turns().events == ["inject", "effect", "heal", "healed"]
    system.names = {kind: {"biling"}}
    (problem,) = Run(system, schedule(kill(target))).turns().nemesis.problems
    assert f"never fired: the cluster has no {kind} 'billing'; did you mean 'biling'?; it has biling" in problem


def test_healing_is_tried_again_until_the_broker_runs() -> None:
    system = FakeSystem()
    system.brokers[1].start_fails = 2
    run = Run(system, schedule(kill(1, seconds=SHORT))).turns()
    assert system.undisturbed()
    assert run.nemesis.problems == []
    assert system.brokers[1].actions.count("start") == 3


def test_a_broker_that_never_starts_again_is_a_problem_after_a_bound() -> None:
    system = FakeSystem()
    system.brokers[1].start_fails = 1 << 30
    run = Run(system, schedule(kill(1, seconds=SHORT))).turns()
    assert run.nemesis.problems == ["kill(broker(1), seconds=0.01) was not healed: it did not start"]
    assert HEAL_TIMEOUT_MS < run.now_ms < HEAL_TIMEOUT_MS + 5_000


def test_a_restart_starts_the_broker_when_it_is_dead_and_not_before() -> None:
    system = FakeSystem()
    system.brokers[2].ends_slowly = True
    run = Run(system, schedule(restart(2))).turns(until_ms=3_000)
    assert run.events == ["inject"]
    assert system.brokers[2].actions == ["terminate"]
    system.brokers[2].state = "dead"
    run.turns()
    assert system.brokers[2].actions == ["terminate", "start"]
    assert (system.brokers[2].incarnation, run.nemesis.problems) == (2, [])


def test_broker_that_does_not_terminate_is_killed_at_healing() -> None:
    system = FakeSystem()
    system.brokers[2].ends_slowly = True
    run = Run(system, schedule(terminate(2, seconds=SHORT)), effect_timeout_ms=1_000).turns()
    assert system.brokers[2].actions == ["terminate", "kill", "start"]
    assert "had no effect" in run.nemesis.problems[0]
    assert system.undisturbed()


def test_bug_in_a_fault_is_a_problem_and_every_fault_is_healed() -> None:
    class Broken(FakeSystem):
        def describe(self) -> Any:
            raise RuntimeError("a bug")

    run = Run(Broken(), schedule(kill(one))).turns()
    assert "a bug" in run.nemesis.problems[0]
    assert run.system.undisturbed()


def test_a_fault_whose_probe_has_a_bug_is_healed() -> None:
    class Buggy(FakeSystem):
        def broker(self, node: int) -> FakeBroker:
            found = super().broker(node)
            if node == 1 and found.own_links.state.rules and not found.actions:
                found.actions.append("seen")
                raise RuntimeError("a bug")
            return found

    run = Run(Buggy(), schedule(isolate(1))).turns()
    assert "a bug" in run.nemesis.problems[0]
    assert run.system.undisturbed()
    assert run.nemesis.over


def test_rows_that_cannot_be_written_are_a_problem_and_every_fault_is_healed() -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    system = FakeSystem()
    nemesis = Nemesis(system, schedule(pause(one, seconds=SHORT)), write=full)
    now_ms = 0
    while (again := nemesis.turn(now_ms)) is not None:
        now_ms = again
    assert system.undisturbed()
    assert len(nemesis.problems) == 4
    assert "No space left" in nemesis.problems[0]


def test_recorded_schedule_affects_the_same_brokers_at_the_same_times() -> None:
    plan = in_turn([kill(one, seconds=(0, 2)), isolate(one, seconds=(0, 2))], seed=9)
    first = Run(FakeSystem(), plan).turns()
    recorded = first.nemesis.schedule
    again = Schedule.from_json(recorded.to_json())
    assert again == recorded
    assert all(step.nodes for step in again.steps)
    second = Run(FakeSystem(), replace(again, seed=12345)).turns()
    assert second.rows == first.rows


def test_a_replayed_step_waits_for_the_time_at_which_it_was_recorded() -> None:
    system = FakeSystem()
    system.controller = None
    plan = schedule(kill(controller(), seconds=SHORT), trigger="traffic")
    run = Run(system, plan).turns(until_ms=4_000)
    system.controller = 3
    recorded = run.turns().nemesis.schedule
    assert recorded.steps[0].fired_ms == 3_000
    again = Run(FakeSystem(), recorded).turns()
    assert again.rows == run.rows


def test_a_schedule_of_a_larger_cluster_is_refused_with_the_remedy() -> None:
    recorded = Schedule(steps=(ScheduledFault(id="7", fault=kill(one), nodes=(5,)),))
    with pytest.raises(ConfigError, match=r"step 7 .* brokers \[5\].*at least 5 brokers"):
        Nemesis(FakeSystem(), recorded)


def test_a_missing_capability_is_named_before_anything_is_broken() -> None:
    system = FakeSystem()
    system.broker(1).own_disk.kinds -= {DiskPowerLoss}
    with pytest.raises(CapabilityError, match=r"power_loss\(one\) .*'power-loss'.*'fake'.*harrow\.power\.loss"):
        Nemesis(system, schedule(kill(one), power_loss(one)))


def test_the_same_seed_draws_the_same_run() -> None:
    plan = in_turn([pause(one, seconds=(0, 3)), kill(leader("orders"), seconds=0)], seed=77)
    runs = [Run(FakeSystem(), replace(plan, seed=seed)).turns().rows for seed in (77, 77, 78)]
    assert runs[0] == runs[1] != runs[2]


def test_when_the_duration_is_over_only_required_steps_fire() -> None:
    steps = (
        ScheduledFault(id="1", fault=pause(one, seconds=SHORT)),
        ScheduledFault(id="2", fault=kill(one, seconds=SHORT), required=False),
        ScheduledFault(id="3", fault=pause(one, seconds=SHORT)),
    )
    run = Run(FakeSystem(), Schedule(steps=steps, duration_ms=0)).turns()
    assert [row["fault"] for row in run.of("inject")] == ["pause", "pause"]
    assert [step.id for step in run.nemesis.schedule.steps] == ["1", "3"]


@pytest.mark.parametrize("away", [restart_registry(seconds=5), pause_registry(seconds=5)], ids=str)
def test_roles_are_resolved_against_the_last_view_while_the_registry_is_down(away: Fault) -> None:
    steps = (
        ScheduledFault(id="1", fault=away, trigger="traffic"),
        ScheduledFault(id="2", fault=pause(leader("orders", 2), seconds=SHORT), trigger="traffic"),
    )
    run = Run(FakeSystem(), Schedule(steps=steps, cap=3)).turns()
    events = [(row["id"], row["event"]) for _, row in run.rows]
    assert events.index(("2", "healed")) < events.index(("1", "heal"))
    assert [step.nodes for step in run.nemesis.schedule.steps] == [(), (3,)]
    assert run.system.undisturbed()


def test_start_deadline_of_a_broker_is_extended_while_the_registry_is_down() -> None:
    system = FakeSystem()

    def start() -> None:
        system.brokers[1].state = "running" if system.own_registry.state == "running" else "starting"
        system.brokers[1].incarnation = 2

    def look() -> Any:
        if system.brokers[1].state == "starting":
            start()
        return status()

    status = system.brokers[1].status
    system.brokers[1].start = start  # type: ignore[method-assign]
    system.brokers[1].status = look  # type: ignore[method-assign]
    steps = (
        ScheduledFault(id="1", fault=kill(1, seconds=SHORT), trigger="traffic"),
        ScheduledFault(id="2", fault=restart_registry(seconds=70), trigger="traffic"),
    )
    run = Run(system, Schedule(steps=steps)).turns()
    assert run.nemesis.problems == []
    assert run.now_ms > HEAL_TIMEOUT_MS
    assert system.undisturbed()


# ----------------------------------------------------------------------------------- in a thread


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_in_a_thread_it_writes_its_rows_with_times_and_ends(tmp_path: Path) -> None:
    log, system = tmp_path / "faults.jsonl", FakeSystem()
    with BackgroundNemesis(system, schedule(kill(one, seconds=0), pause(one, seconds=0)), log=log) as runner:
        assert runner.finish(30)
    rows = lines(log)
    assert [row["event"] for row in rows] == ["inject", "effect", "heal", "healed"] * 2
    assert sorted(row["t_ns"] for row in rows) == [row["t_ns"] for row in rows]
    assert runner.effects == 2
    assert not runner.running
    assert system.undisturbed()


def test_stopping_the_thread_heals_and_raises_the_failures_once(tmp_path: Path) -> None:
    log, system, probed = tmp_path / "faults.jsonl", FakeSystem(), threading.Semaphore(0)
    system.traffic = False

    def has_traffic() -> bool:
        probed.release()
        return False

    runner = BackgroundNemesis(system, schedule(kill(one)), log=log, has_traffic=has_traffic)
    runner.start()
    for _ in range(3):
        assert probed.acquire(timeout=10)
    with pytest.raises(NemesisError, match=r"kill\(one\) never fired"):
        runner.stop()
    runner.stop()
    assert [row["event"] for row in lines(log)] == ["skipped"]
