"""The error of a wall clock: what it shows, how often it was read, and when it is right again."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.events import TraceEvent
from harrow.cluster.host.knobs.clock_faults import ClockFaults, ClockRules
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.simulated import Machine, World

START_WALL, START_MONOTONIC = 1_700_000_000_000, 5_000


def begun(kind: str, **fields: Any) -> ClockFaults:
    faults = ClockFaults()
    given: dict[str, Any] = {"by_ms": 0, "rate": 1.0, "period_ms": 0, **fields}
    faults.set(kind, monotonic_ms=START_MONOTONIC, wall_ms=START_WALL, **given)
    return faults


def off_after(faults: ClockFaults, passed_ms: int) -> int:
    """How far the clock is off."""
    wall_ms = START_WALL + passed_ms
    return faults.read(wall_ms, START_MONOTONIC + passed_ms) - wall_ms


@pytest.mark.parametrize(
    ("kind", "fields", "off"),
    [
        ("jump", {"by_ms": -700}, {0: -700, 10: -700, 90_000: -700}),
        ("skew", {"rate": 0.0}, {0: 0, 10: -10, 90_000: -90_000}),
        ("skew", {"rate": 1.5}, {0: 0, 10: 5, 90_000: 45_000}),
        ("strobe", {"by_ms": 9, "period_ms": 20}, {0: 9, 19: 9, 20: 0, 39: 0, 40: 9}),
    ],
)
def test_a_clock_is_off_by_what_was_set(kind: str, fields: dict[str, Any], off: dict[int, int]) -> None:
    faults = begun(kind, **fields)
    assert {passed: off_after(faults, passed) for passed in off} == off
    [row] = faults.report(START_WALL, START_MONOTONIC)
    assert (row["armed"], row["fired"], row["off_ms"]) == (True, len(off), off[0])


@pytest.mark.parametrize(
    ("kind", "fields"), [("leap", {}), ("skew", {"rate": -1}), ("strobe", {"by_ms": 5}), ("jump", {"by_ms": 10**13})]
)
def test_an_error_that_no_clock_has_is_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="clock fault"):
        begun(kind, **fields)


class Traced:
    """A trace that keeps the names of events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def emit(self, event: TraceEvent, /) -> None:
        self.events.append(event.event_name)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        self.events.append(level)


def test_a_real_clock_is_wrong_until_its_rule_is_removed() -> None:
    clock, trace = RealClock(), Traced()
    rules = ClockRules(clock.faults, clock.true_times, trace)
    number = rules.add({"error": "jump", "by_ms": 3_600_000})
    true_ms, _ = clock.true_times()
    assert 3_600_000 <= clock.wall_ms() - true_ms < 3_660_000
    assert rules.report() == [{"id": number, "kind": "jump", "armed": True, "fired": 1, "off_ms": 3_600_000}]
    rules.remove(number)
    rules.remove(number)
    true_ms, _ = clock.true_times()
    assert 0 <= clock.wall_ms() - true_ms < 60_000
    assert trace.events == ["clock.set", "clock.cleared"]


def test_a_rule_that_another_one_replaced_does_not_remove_it() -> None:
    clock, trace = RealClock(), Traced()
    rules = ClockRules(clock.faults, clock.true_times, trace)
    first = rules.add({"error": "jump", "by_ms": 1_000})
    second = rules.add({"error": "jump", "by_ms": 3_600_000})
    rules.remove(first)
    [row] = rules.report()
    assert (row["id"], row["armed"]) == (second, True)
    assert clock.wall_ms() - clock.true_times()[0] >= 3_600_000 - 1
    rules.remove(None)
    assert trace.events == ["clock.set", "clock.set", "clock.cleared"]


def test_the_clock_of_a_simulated_machine_is_right_in_the_next_incarnation() -> None:
    world = World(1)
    machine = Machine(world, "broker-1", Peer("broker", "1"))
    host = machine.boot()
    true_ms = host.clock.wall_ms()
    host.control.call("rules.add", kind="clock", error="jump", by_ms=-50)
    assert host.clock.wall_ms() == true_ms - 50
    assert host.clock.monotonic_ms() == machine.clock.true_times()[1]
    machine.kill()
    assert machine.boot().clock.wall_ms() == true_ms
    world.close()
