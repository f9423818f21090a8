"""The nemesis: first traffic, the cap, proofs, the log, and always healed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_system import FakeSystem, fake_system
from harrow.faults import (
    Fault,
    Nemesis,
    NemesisError,
    Schedule,
    Step,
    controller,
    isolate,
    kill,
    leader,
    lose_response,
    majority,
    one,
    pause,
    pause_registry,
    restart_registry,
)
from harrow.faults.schedule import in_turn

SHORT = 0.01


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def events(path: Path) -> list[str]:
    return [line["event"] for line in lines(path)]


def schedule(*faults: Fault, **more: Any) -> Schedule:
    steps = (Step(id=str(n), fault=fault, **more) for n, fault in enumerate(faults, 1))
    return Schedule(steps=tuple(steps), seed=5)


def nemesis(system: FakeSystem, plan: Schedule, log: Path, **more: Any) -> Nemesis:
    more.setdefault("has_traffic", lambda: True)
    return Nemesis(system, plan, log=log, tick_s=0.001, **more)


def test_faults_come_in_turn_each_proved_and_healed(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        plan = schedule(kill(leader("orders", 0), seconds=SHORT), pause(controller(), seconds=SHORT),
                        isolate(one, seconds=SHORT))  # fmt: skip
        runner = nemesis(system, plan, log)
        runner.start()
        assert runner.finish(30)
        runner.stop()
        assert system.undisturbed()
    assert events(log) == ["inject", "effect", "heal", "healed"] * 3
    first = lines(log)[0]
    assert (first["id"], first["fault"], first["targets"]) == ("1", "kill", [1])
    assert first["label"] == "kill(leader('orders', 0), seconds=0.01)"
    assert sorted(line["t_ns"] for line in lines(log)) == [line["t_ns"] for line in lines(log)]
    assert runner.effects == 3


def test_the_first_fault_waits_for_the_first_traffic(tmp_path: Path) -> None:
    log, asked, traffic = tmp_path / "faults.jsonl", threading.Semaphore(0), threading.Event()

    def has_traffic() -> bool:
        asked.release()
        return traffic.is_set()

    with fake_system() as system:
        runner = nemesis(system, schedule(kill(one, seconds=SHORT)), log, has_traffic=has_traffic)
        with runner:
            for _ in range(5):
                assert asked.acquire(timeout=10)
            assert not events(log)
            traffic.set()
            assert runner.finish(30)
    assert events(log)[0] == "inject"


def test_without_traffic_nothing_fires_and_the_run_fails(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        runner = nemesis(system, schedule(kill(one)), log, has_traffic=lambda: False)
        runner.start()
        assert runner.finish(30)
        with pytest.raises(NemesisError, match=r"kill\(one\) never fired: no traffic came"):
            runner.stop()
        runner.stop()  # told once
    assert events(log) == ["skipped"]


def test_stopped_in_the_middle_it_ends_healed(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        runner = nemesis(system, schedule(pause(one, seconds=600)), log)
        runner.start()
        while "effect" not in events(log):
            threading.Event().wait(0.002)
        assert not system.undisturbed()
        runner.stop()
        assert system.undisturbed()
    assert events(log) == ["inject", "effect", "heal", "healed"]


def test_the_cap_holds(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    together = Schedule(
        steps=tuple(
            Step(id=str(n), fault=kill(n, seconds=SHORT), trigger="traffic") for n in (1, 2, 3)
        )
    )
    with fake_system() as system:
        runner = nemesis(system, together, log)
        runner.start()
        assert runner.finish(30)
        runner.stop()
    down = most = 0
    for event in events(log):
        down += {"inject": 1, "healed": -1}.get(event, 0)
        most = max(most, down)
    assert most == 1
    assert events(log).count("healed") == 3


def test_what_the_cap_can_never_allow_is_skipped_and_said(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        runner = nemesis(system, schedule(kill(majority)), log)
        runner.start()
        assert runner.finish(30)
        with pytest.raises(NemesisError, match="more brokers than the cap, 1"):
            runner.stop()
        assert system.undisturbed()
        optional = nemesis(system, schedule(kill(majority), required=False), log)
        optional.start()
        assert optional.finish(30)
        optional.stop()
        allowed = replace(schedule(kill(majority, seconds=SHORT)), cap=2)
        bold = nemesis(system, allowed, log)
        bold.start()
        assert bold.finish(30)
        bold.stop()
    assert events(log) == ["skipped", "skipped", "inject", "effect", "heal", "healed"]


def test_a_fault_without_effect_fails_the_run(tmp_path: Path) -> None:
    with fake_system() as system:
        system.held = 0
        plan = schedule(isolate(one, seconds=SHORT))
        runner = nemesis(system, plan, tmp_path / "f", effect_timeout_s=0.05)
        runner.start()
        assert runner.finish(30)
        with pytest.raises(NemesisError, match="had no effect"):
            runner.stop()
        assert system.undisturbed()


def test_a_response_that_no_traffic_asks_for_is_disarmed_and_said(tmp_path: Path) -> None:
    with fake_system() as system:
        runner = nemesis(system, schedule(lose_response("Produce")), tmp_path / "f")
        runner.start()
        while not system.lost[3]:
            threading.Event().wait(0.002)
        with pytest.raises(NemesisError, match="no effect"):
            runner.stop()
        assert system.undisturbed()


def test_a_role_that_nobody_plays_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        system.controller = None
        runner = nemesis(system, schedule(kill(controller(), seconds=SHORT)), log)
        runner.start()
        assert not runner.finish(0.05)
        system.controller = 3
        assert runner.finish(30)
        runner.stop()
    assert lines(log)[0]["targets"] == [3]


def test_healing_is_tried_again(tmp_path: Path) -> None:
    with fake_system() as system:
        system.brokers[1].starts_fail = 2
        runner = nemesis(system, schedule(kill(1, seconds=SHORT)), tmp_path / "f")
        runner.start()
        assert runner.finish(30)
        runner.stop()
        assert system.undisturbed()


def test_a_bug_in_a_fault_surfaces_and_leaves_nothing_broken(tmp_path: Path) -> None:
    class Broken(FakeSystem):
        def describe(self) -> Any:
            raise RuntimeError("a bug")

    system = Broken()
    try:
        runner = nemesis(system, schedule(kill(one)), tmp_path / "f")
        runner.start()
        assert runner.finish(30)
        with pytest.raises(NemesisError, match="a bug"):
            runner.stop()
        assert system.undisturbed()
    finally:
        system.close()


def test_a_recorded_schedule_hits_the_same_brokers_for_the_same_time(tmp_path: Path) -> None:
    def run(plan: Schedule, log: Path) -> tuple[Schedule, list[Any]]:
        with fake_system() as system:
            runner = nemesis(system, plan, log)
            runner.start()
            assert runner.finish(30)
            runner.stop()
            shown = [line for line in lines(log) if line["event"] == "inject"]
            return runner.schedule, [(row["targets"], row["evidence"]) for row in shown]

    plan = in_turn([kill(one, seconds=(0, 0.05)), isolate(one, seconds=(0, 0.05))], seed=9)
    recorded, first = run(plan, tmp_path / "1")
    again = Schedule.from_json(recorded.to_json())
    assert again == recorded
    assert all(step.nodes for step in again.steps)
    _, second = run(replace(again, seed=12345), tmp_path / "2")
    assert second == first


def test_the_same_seed_draws_the_same_run(tmp_path: Path) -> None:
    plan = in_turn([pause(one, seconds=(0, 0.03)), kill(leader("orders"), seconds=0)], seed=77)
    drawn: list[list[Any]] = []
    for name in ("a", "b"):
        with fake_system() as system, nemesis(system, plan, tmp_path / name) as runner:
            assert runner.finish(30)
        drawn.append([(line["targets"], line["event"]) for line in lines(tmp_path / name)])
    assert drawn[0] == drawn[1]


def test_when_its_time_is_over_only_what_must_fire_does(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    steps = (
        Step(id="1", fault=pause(one, seconds=SHORT)),
        Step(id="2", fault=kill(one, seconds=SHORT), required=False),
        Step(id="3", fault=pause(one, seconds=SHORT)),
    )
    with fake_system() as system:
        runner = nemesis(system, Schedule(steps=steps, duration_ms=0), log)
        runner.start()
        assert runner.finish(30)
        runner.stop()
    assert [line["fault"] for line in lines(log) if line["event"] == "inject"] == ["pause", "pause"]
    assert [step.id for step in runner.schedule.steps] == ["1", "3"]


@pytest.mark.parametrize(
    "away", [restart_registry(seconds=0.1), pause_registry(seconds=0.1)], ids=str
)
def test_while_the_registry_is_away_nothing_else_fires_or_is_healed(
    tmp_path: Path, away: Fault
) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        steps = (
            Step(id="1", fault=kill(1, seconds=SHORT), trigger="traffic"),
            Step(id="2", fault=away, trigger="traffic"),
            Step(id="3", fault=pause(3, seconds=SHORT), trigger="traffic"),
        )
        runner = nemesis(system, Schedule(steps=steps, cap=3), log)
        runner.start()
        assert runner.finish(30)
        runner.stop()
        assert system.undisturbed()
        recorded = Schedule.from_json(runner.schedule.to_json())
        assert recorded == runner.schedule
        assert [step.nodes for step in recorded.steps] == [(1,), (), (3,)]
    told = [(line["id"], line["event"]) for line in lines(log)]
    begun, ended = told.index(("2", "inject")), told.index(("2", "healed"))
    assert [step for step, _ in told[begun:ended]] == ["2"] * (ended - begun)
    assert told.index(("1", "inject")) < begun
    assert ended < told.index(("1", "healed"))
    assert ended < told.index(("3", "inject"))


def test_stopped_while_the_registry_is_away_it_is_back_before_the_brokers(tmp_path: Path) -> None:
    log = tmp_path / "faults.jsonl"
    with fake_system() as system:
        start = system.brokers[1].start

        def start_with_registry() -> None:
            assert system.registry.state == "running"
            start()

        system.brokers[1].start = start_with_registry  # type: ignore[method-assign]
        steps = (
            Step(id="1", fault=kill(1, seconds=600), trigger="traffic"),
            Step(id="2", fault=restart_registry(seconds=600), trigger="traffic"),
        )
        runner = nemesis(system, Schedule(steps=steps), log)
        runner.start()
        while events(log).count("effect") < 2:
            threading.Event().wait(0.002)
        runner.stop()
        assert system.undisturbed()
