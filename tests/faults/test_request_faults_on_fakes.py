"""Faults of several requests on a fake system: what is armed, when they end, and schedules of earlier versions (K2)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fake_system import FakeSystem
from harrow.faults import (
    Fault,
    Injection,
    delay_request,
    duplicate_request,
    fail_response,
    lose_request,
    lose_response,
    one,
    refuse_request,
)
from harrow.faults.fault_kinds import fault_from_json
from harrow.faults.request_faults import COUNT_IDLE_MS
from harrow.faults.schedule import Schedule
from harrow.faults.system import REQUEST_ACTIONS, take_snapshot

CHOICE: dict[str, Any] = {
    "nth": 2, "count": 3, "probability": 0.5, "client": "shop-*", "where": {"topic": "orders"}
}  # fmt: skip
EVERY: list[Any] = [
    lose_response, fail_response, refuse_request, lose_request, delay_request, duplicate_request
]  # fmt: skip


def armed(fault: Fault, seed: int = 5) -> tuple[FakeSystem, Injection]:
    system = FakeSystem()
    injection = fault.resolve(take_snapshot(system), random.Random(seed))
    fault.inject(system, injection)
    return system, injection


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_every_fault_of_requests_arms_what_it_was_given(make: Any) -> None:
    fault: Fault = make("Produce", **CHOICE)
    system, injection = armed(fault)
    (rule,) = system.brokers[1].rules
    assert {name: rule.what[name] for name in CHOICE} == CHOICE
    assert rule.what["seed"] == injection.details["seed"]
    assert rule.what["action"] in REQUEST_ACTIONS
    assert fault_from_json(fault.to_json()) == fault
    assert hash(fault) == hash(fault_from_json(fault.to_json()))


def test_a_fault_without_probability_draws_nothing_so_that_earlier_schedules_stay_the_same() -> (
    None
):
    _, injection = armed(lose_response("Produce", nth=3))
    assert injection.details == {}


def test_a_fault_of_several_requests_ends_when_one_broker_has_acted_so_often() -> None:
    fault = lose_request("Produce", count=3)
    system, injection = armed(fault)
    rule = system.brokers[2].rules[0]
    rule.fired = 1
    fault.advance(system, injection, 1_000)
    assert fault.probe(system, injection).proved
    assert not fault.is_done(injection)
    rule.fired = 3
    fault.advance(system, injection, 2_000)
    assert fault.is_done(injection)


def test_a_fault_of_several_requests_ends_when_no_request_comes_any_more() -> None:
    fault = lose_request("Produce", count=3)
    system, injection = armed(fault)
    system.brokers[2].rules[0].fired = 1
    fault.advance(system, injection, 1_000)
    fault.advance(system, injection, 1_000 + COUNT_IDLE_MS)
    assert not fault.is_done(injection)
    fault.advance(system, injection, 1_001 + COUNT_IDLE_MS)
    assert fault.is_done(injection)


def test_a_fault_with_a_duration_lasts_as_long_however_often_it_acts() -> None:
    fault = lose_request("Produce", count=1000, seconds=2)
    _, injection = armed(fault)
    assert (injection.duration_ms, fault.is_done(injection)) == (2_000, True)


@pytest.mark.parametrize(
    "recorded",
    [
        {"name": "lose_response", "target": {"role": "all"}, "nth": 3},
        {"name": "refuse_request", "target": {"role": "all"}, "api": "Produce", "error": "NOT_ENOUGH_REPLICAS"},
        {"name": "refuse_request", "target": {"role": "all"}, "api": "Fetch", "error": "NOT_ENOUGH_REPLICAS"},
        {"name": "delay_request", "target": {"role": "all"}, "delay_ms": [10, 20], "client": "x"},
        {"name": "lose_request", "target": {"role": "all"}, "silent": True},
    ],
)  # fmt: skip
def test_a_schedule_of_an_earlier_version_loads(recorded: dict[str, Any]) -> None:
    recorded["target"] = one.to_json()
    fault = fault_from_json(recorded)
    assert fault_from_json(fault.to_json()) == fault
    for name, value in recorded.items():
        if name not in ("name", "target"):
            given: Any = getattr(fault, name)
            assert (list(given) if name == "delay_ms" else given) == value


def test_a_schedule_keeps_the_choice_of_requests() -> None:
    from harrow.faults.planning import in_turn

    planned = in_turn(
        [refuse_request("Fetch", "OFFSET_OUT_OF_RANGE", where={"topic": "orders"}, count=2)], 3
    )
    assert Schedule.from_json(planned.to_json()) == planned
