"""Faults and targets of an extension: by name, in schedule files, drawn at random, run by the nemesis (J4, K9)."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from added_extensions import added
from fake_system import FakeSystem
from harrow.faults import (
    Evidence,
    Injection,
    Nemesis,
    OutsideFault,
    Role,
    Schedule,
    ScheduledFault,
    System,
    Target,
    TargetError,
    fault_from_json,
    kill,
)
from harrow.faults.errors import ConfigError, FaultError
from harrow.faults.planning import in_turn, overlapping_schedule, possible_kinds, random_schedule
from harrow.faults.process_faults import Kill
from harrow.faults.system import ClusterSnapshot, take_snapshot
from harrow.faults.targets import brokers_at_once
from harrow.harness.run_settings import RunSettings
from harrow.harness.simulation.run import run_schedule

STATE = {"down": False}
SHOP = Target(role="service", name="shop")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopShop(OutsideFault):
    kind: ClassVar[str] = "stop_shop"
    random_weight: ClassVar[int] = 3
    target: Target = SHOP
    hard: bool = False

    def check_ready(self) -> None:
        if STATE["down"]:
            raise TargetError(f"{self}: it is down")

    def inject(self, system: System, injection: Injection) -> None:
        STATE["down"] = True

    def probe(self, system: System, injection: Injection) -> Evidence:
        return Evidence(proved=STATE["down"])

    def heal(self, system: System, injection: Injection) -> None:
        STATE["down"] = False

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        return Evidence(proved=not STATE["down"])


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAgain(Kill):
    kind: ClassVar[str] = "kill_again"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsWord(StopShop):
    kind: ClassVar[str] = "needs_word"
    word: str


def odd(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> list[int]:
    return [node for node in snapshot.brokers if node % 2 == int(target.name or 1)]


def wrong(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> list[int]:
    return [99]


def broken(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> list[int]:
    raise KeyError("rack")


@pytest.fixture(autouse=True)
def extension() -> Iterator[None]:
    STATE["down"] = False
    roles = [
        Role(name="service"),
        Role(name="odd", resolve=odd, most=lambda brokers: (brokers + 1) // 2),
        Role(name="wrong", resolve=wrong),
        Role(name="broken", resolve=broken),
    ]
    with added(harrow_faults=lambda: [StopShop, KillAgain, NeedsWord], harrow_targets=lambda: roles):
        yield


def test_a_fault_and_its_target_are_read_from_a_schedule_file() -> None:
    schedule = in_turn([StopShop(hard=True, seconds=2), kill(Target(role="odd", name="0"))], 3)
    text = schedule.to_json()
    assert json.loads(text)["steps"][0]["fault"] == {
        "name": "stop_shop",
        "target": {"role": "service", "name": "shop"},
        "hard": True,
        "seconds": 2,
    }
    assert Schedule.from_json(text) == schedule
    assert str(schedule.steps[0].fault) == "stop_shop(service('shop'), seconds=2, hard=True)"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"name": "stop_shoq", "target": {"role": "one"}}, r"no fault 'stop_shoq'; did you mean stop_shop\?"),
        ({"name": "stop_shop", "target": {"role": "servise"}}, r"'servise'; did you mean service\?"),
        ({"name": "stop_shop", "target": {"role": "service"}, "hart": 1}, r"no parameter 'hart'; did you mean hard\?"),
        ({"name": "needs_word", "target": {"role": "service"}}, "fault needs_word: .*word"),
        ({"name": "fault_of_a_stranger", "target": {"role": "one"}}, "a fault of an extension needs its distribution"),
    ],
)
def test_a_schedule_with_a_name_that_no_extension_has_is_refused(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        fault_from_json(raw)


def test_a_role_gives_brokers_that_run_and_are_not_disturbed() -> None:
    system = FakeSystem(5)
    system.brokers[3].kill()
    snapshot = take_snapshot(system, frozenset({5}))
    target = Target(role="odd", name="1")
    assert target.resolve(snapshot, random.Random(1)) == (1,)
    assert brokers_at_once(target, 5) == 3
    with pytest.raises(TargetError, match="no running broker plays this role"):
        Target(role="service", name="shop").resolve(snapshot, random.Random(1))


@pytest.mark.parametrize(
    ("role", "said"), [("wrong", r"returned \[99\], which are no brokers"), ("broken", r"raised KeyError\('rack'\)")]
)
def test_a_role_whose_function_is_wrong_is_named(role: str, said: str) -> None:
    with pytest.raises(FaultError, match=f"{role}.*{said}"):
        Target(role=role).resolve(take_snapshot(FakeSystem()), random.Random(1))


def test_random_faults_draw_a_kind_of_an_extension_by_its_weight() -> None:
    def drawn(kinds: Any) -> Counter[str]:
        schedule = random_schedule(1, kinds, 900, topics=["orders"], seconds=1, swarm=False)
        return Counter(step.fault.kind for step in schedule.steps)

    by_class = drawn(["kill", "stop_shop"])
    assert 2 < by_class["stop_shop"] / by_class["kill"] < 4.5
    by_caller = drawn({"kill": 4, "stop_shop": 1})
    assert 2.5 < by_caller["kill"] / by_caller["stop_shop"] < 6
    again = drawn({"kill": 4, "stop_shop": 1})
    assert again == by_caller
    with pytest.raises(ConfigError, match="its weight is 0, expected a number from 1"):
        random_schedule(1, {"kill": 0})


def test_a_kind_that_cannot_be_drawn_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"stop_shop.*needs_word cannot be drawn, because it needs word"):
        random_schedule(1, ["needs_word"])
    with pytest.raises(ConfigError, match="fault 'disk_error': expected one of kill"):
        random_schedule(1, ["disk_error"])


def test_kinds_of_extensions_are_drawn_with_random_roles_and_overlapping_too() -> None:
    schedule = random_schedule(5, ["kill_again"], 30, topics=["orders"])
    assert {step.fault.kind for step in schedule.steps} == {"kill_again"}
    assert len({step.fault.target for step in schedule.steps}) > 1
    mixed = overlapping_schedule(5, duration_ms=9000, session_ms=300, brokers=3, weights={"kill": 1, "stop_shop": 1})
    assert {step.fault.kind for step in mixed.steps} == {"kill", "stop_shop"}
    assert possible_kinds(["stop_shop", "kill"], frozenset()) == ("stop_shop",)


def turns(nemesis: Nemesis, most: int = 4000) -> None:
    now: int | None = 0
    while now is not None and now < most:
        now = nemesis.turn(now)


def test_the_nemesis_runs_it_beside_faults_of_brokers_and_replays_it() -> None:
    rows: list[dict[str, Any]] = []
    planned = in_turn([StopShop(seconds=0.1), kill(Target(role="odd", name="1"), seconds=0.1)], 3, cap=2)
    nemesis = Nemesis(FakeSystem(), planned, write=rows.append)
    turns(nemesis)
    assert nemesis.over
    assert nemesis.problems == []
    assert [row["event"] for row in rows if row["fault"] == "stop_shop"] == ["inject", "effect", "heal", "healed"]
    replayed = Nemesis(FakeSystem(), Schedule.from_json(nemesis.schedule.to_json()))
    turns(replayed)
    assert replayed.problems == []
    assert replayed.effects == 2
    assert not STATE["down"]


def test_a_fault_that_raises_is_a_problem_and_the_others_are_healed() -> None:
    class Breaks(StopShop):
        kind: ClassVar[str] = "breaks"

        def probe(self, system: System, injection: Injection) -> Evidence:
            raise ZeroDivisionError

    steps = (
        ScheduledFault(id="1", fault=kill(2, seconds=60), trigger="traffic"),
        ScheduledFault(id="2", fault=Breaks(seconds=1), trigger="traffic", at_ms=10),
    )
    system = FakeSystem()
    nemesis = Nemesis(system, Schedule(steps=steps, cap=2))
    turns(nemesis)
    assert nemesis.over
    assert any("breaks" in problem and "ZeroDivisionError" in problem for problem in nemesis.problems)
    assert system.undisturbed()
    assert not STATE["down"]


def test_a_simulation_refuses_what_lies_outside_of_its_virtual_clock() -> None:
    step = ScheduledFault(id="1", fault=StopShop())
    with pytest.raises(ConfigError, match=r"stop_shop\(service\('shop'\)\) hits something outside of the cluster"):
        run_schedule(Schedule(steps=(step,), run=RunSettings().to_json()))
    with pytest.raises(ConfigError, match="workload 'shop': a simulation has orders, exactly-once"):
        run_schedule(Schedule(run=RunSettings(workload="shop").to_json()))
