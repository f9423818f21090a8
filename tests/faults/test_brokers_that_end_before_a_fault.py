"""Brokers that end, or are paused, after a fault was resolved and before it is injected: an error with words (K)."""

from __future__ import annotations

from typing import Any

import pytest
from fake_system import FakeSystem
from harrow.faults import Nemesis, Schedule, ScheduledFault, all_brokers, rolling_restart
from harrow.faults.controls import DEAD, PAUSED, RUNNING
from harrow.faults.planning import RANDOM_FAULTS, drawn_fault

LATEST_MS = 900_000


def run_to_the_end(nemesis: Nemesis, now_ms: int = 0) -> None:
    while (again := nemesis.turn(now_ms)) is not None:
        assert now_ms < LATEST_MS, nemesis.waits_for
        now_ms = again
        if now_ms > 400_000:
            nemesis.stop()


@pytest.mark.parametrize("state", [DEAD, PAUSED])
@pytest.mark.parametrize("kind", sorted(RANDOM_FAULTS))
def test_no_fault_has_a_bug_when_its_brokers_ended_before_it_began(kind: str, state: str) -> None:
    system = FakeSystem()

    def write(row: dict[str, Any]) -> None:
        if row["event"] == "inject":  # written before the action
            for broker in system.brokers.values():
                broker.state = state

    step = ScheduledFault(id="1", fault=drawn_fault(kind, all_brokers), required=False)
    nemesis = Nemesis(system, Schedule(steps=(step,), seed=3, cap=3), write=write)
    run_to_the_end(nemesis)
    assert not [problem for problem in nemesis.problems if " failed: " in problem]


def test_a_rolling_restart_waits_for_a_first_broker_that_was_starting() -> None:
    system = FakeSystem()

    def write(row: dict[str, Any]) -> None:
        if row["event"] == "inject":
            system.brokers[1].state = PAUSED

    step = ScheduledFault(id="1", fault=rolling_restart())
    nemesis = Nemesis(system, Schedule(steps=(step,), seed=3), write=write)
    assert nemesis.turn(0) is not None
    assert nemesis.turn(10) is not None
    assert nemesis.problems == []
    system.brokers[1].state = RUNNING
    run_to_the_end(nemesis, 20)
    assert nemesis.problems == []
    assert [broker.incarnation for broker in system.brokers.values()] == [2, 2, 2]
