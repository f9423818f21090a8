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
from harrow.faults.errors import ConfigError
from harrow.faults.fault_kinds import fault_from_json
from harrow.faults.request_faults import COUNT_IDLE_MS
from harrow.faults.rule_kinds import REQUEST_ACTIONS
from harrow.faults.schedule import Schedule
from harrow.faults.system import take_snapshot

CHOICE: dict[str, Any] = {"nth": 2, "count": 3, "probability": 0.5, "client": "shop-*", "where": {"topic": "orders"}}
EVERY: list[Any] = [lose_response, fail_response, refuse_request, lose_request, delay_request, duplicate_request]


def armed(fault: Fault, seed: int = 5) -> tuple[FakeSystem, Injection]:
    system = FakeSystem()
    injection = fault.resolve(take_snapshot(system), random.Random(seed))
    fault.inject(system, injection)
    return system, injection


@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_every_fault_of_requests_arms_what_it_was_given(make: Any) -> None:
    fault: Fault = make("Produce", **CHOICE)
    system, injection = armed(fault)
    (rule,) = system.brokers[1].own_rules.armed
    assert {name: rule.what[name] for name in CHOICE} == CHOICE
    assert rule.what["seed"] == injection.details["seed"]
    assert rule.what["action"] in REQUEST_ACTIONS
    assert fault_from_json(fault.to_json()) == fault
    assert hash(fault) == hash(fault_from_json(fault.to_json()))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: refuse_request("Fetch", "NOT_COORDINATOR"), "gives CORRUPT_MESSAGE, .*OFFSET_OUT_OF.*any_error=True"),
        (lambda: fail_response("Fetch", "REQUEST_TIMED_OUT"), "no effect that an error could follow; write refuse"),
        (lambda: fail_response("Produce", "MESSAGE_TOO_LARGE"), "took effect. It gives KAFKA_STORAGE_ERROR"),
        (lambda: refuse_request("DescribeAcls", "NOT_COORDINATOR"), "gives CLUSTER_AUTHORIZATION_FAILED, INVALID_R"),
        (lambda: lose_request(count=0), r"lose_request\(count=0\): expected a number from 1 to"),
        (lambda: lose_request(probability=1.5), "expected more than 0, and at most 1"),
        (lambda: lose_request("Fetch", where={"group": "billing"}), "names no group; it names partition, topic"),
        (lambda: lose_request("Heartbeat", where={"gruop": "billing"}), "did you mean 'group'"),
        (lambda: lose_request("ListGroups", where={"topic": "orders"}), "it names nothing"),
    ],
)
def test_what_chooses_no_request_or_is_no_error_of_kafkas_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_fault_without_probability_draws_nothing_so_that_earlier_schedules_stay_the_same() -> None:
    _, injection = armed(lose_response("Produce", nth=3))
    assert injection.details == {}


def test_a_fault_of_several_requests_ends_when_one_broker_has_acted_so_often() -> None:
    fault = lose_request("Produce", count=3)
    system, injection = armed(fault)
    rule = system.brokers[2].own_rules.armed[0]
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
    system.brokers[2].own_rules.armed[0].fired = 1
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
)
def test_a_schedule_of_an_earlier_version_loads(recorded: dict[str, Any]) -> None:
    recorded["target"] = one.to_json()
    fault = fault_from_json(recorded)
    assert fault_from_json(fault.to_json()) == fault
    for name, value in recorded.items():
        if name not in ("name", "target"):
            given: Any = getattr(fault, name)
            assert (list(given) if name == "delay_ms" else given) == value


def test_an_error_that_kafka_never_gives_is_injected_for_the_stubborn() -> None:
    fault = refuse_request("Fetch", "NOT_COORDINATOR", any_error=True)
    system, _ = armed(fault)
    assert system.brokers[1].own_rules.armed[0].what["error"] == 16
    assert fault_from_json(fault.to_json()) == fault


def test_a_schedule_keeps_the_choice_of_requests() -> None:
    from harrow.faults.planning import in_turn

    planned = in_turn([refuse_request("Fetch", "OFFSET_OUT_OF_RANGE", where={"topic": "orders"}, count=2)], 3)
    assert Schedule.from_json(planned.to_json()) == planned
