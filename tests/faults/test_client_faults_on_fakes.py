"""Faults of clients and of programs, step by step, on a cluster that is nothing but its state (K8)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fake_system import FakeSystem
from harrow.cluster.errors import ConfigError
from harrow.faults import (
    Fault,
    Injection,
    Nemesis,
    expire_lock,
    hijack_transactional_id,
    isolate_client,
    kill_program,
    pause_program,
    rebalance_storm,
    stuck_consumer,
    stuck_share_consumer,
    terminate_program,
)
from harrow.faults.controls import DEAD, PAUSED, RUNNING
from harrow.faults.planning import check_drawable, in_turn, random_schedule
from harrow.faults.system import take_snapshot


def begun(system: FakeSystem, fault: Fault) -> Injection:
    injection = fault.resolve(take_snapshot(system), random.Random(3))
    assert not fault.probe(system, injection).proved
    fault.inject(system, injection)
    fault.inject(system, injection)
    return injection


@pytest.mark.parametrize(
    ("fault", "asked"),
    [
        (hijack_transactional_id("billing-1"), {"transactional_id": "billing-1"}),
        (stuck_consumer("billing"), {"group": "billing"}),
        (stuck_share_consumer("billing"), {"group": "billing"}),
        (
            rebalance_storm("billing", every_s=(0.2, 0.3)),
            {"group": "billing", "every_ms": (200, 300), "seed": 2337446730},
        ),
    ],
    ids=str,
)
def test_a_client_begins_once_and_acts_until_it_is_healed(fault: Fault, asked: dict[str, Any]) -> None:
    system = FakeSystem()
    injection = begun(system, fault)
    (client,) = system.own_clients.armed
    assert client.what == asked
    assert not fault.probe(system, injection).proved
    client.fire()
    assert fault.probe(system, injection).proved
    assert not fault.probe_healed(system, injection).proved
    fault.heal(system, injection)
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.undisturbed()


def test_locks_end_once_where_records_are_locked() -> None:
    system, fault = FakeSystem(), expire_lock("workers", member="m-1")
    system.brokers[1].kill()
    injection = begun(system, fault)
    assert not fault.probe(system, injection).proved  # nothing is locked yet
    system.brokers[2].locks = {("workers", "m-1"): 3, ("workers", "m-2"): 4, ("others", "m-1"): 5}
    for _ in range(2):
        fault.inject(system, injection)
    found = fault.probe(system, injection)
    assert found.proved
    assert found.facts == {"records": {"2": 3}}
    assert sum(system.brokers[2].locks.values()) == 9
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved


def test_clients_are_isolated_on_every_broker_and_on_one_that_starts_later() -> None:
    system, fault = FakeSystem(), isolate_client("orders-*")
    system.brokers[3].kill()
    injection = begun(system, fault)
    system.brokers[1].own_links.held_by_peer = {"client feed": 5, "client orders-1": 0}
    found = fault.probe(system, injection)
    assert not found.proved  # the client is connected, and has sent nothing yet
    assert found.facts == {"held_bytes": {"client orders-1": 0}}
    system.brokers[3].start()
    fault.advance(system, injection, 10)
    system.brokers[3].own_links.held_by_peer = {"client orders-2": 7}
    assert fault.probe(system, injection).proved
    rules = [rule for broker in system.brokers.values() for rule in broker.own_links.state.rules]
    assert rules == [{"peers": "client orders-*", "direction": "both"}] * 3
    fault.heal(system, injection)
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.undisturbed()


def test_a_pattern_without_a_client_names_those_that_are_connected() -> None:
    system, fault = FakeSystem(), isolate_client("ordres")
    injection = begun(system, fault)
    system.brokers[1].own_links.held_by_peer = {"client orders": 5, "broker 2": 1}
    found = fault.probe(system, injection)
    assert not found.proved
    assert found.facts["clients"] == ("no client 'ordres' is connected; did you mean 'orders'?; connected: 'orders'")


def test_the_rule_of_another_fault_stays_when_a_client_is_released() -> None:
    system, fault = FakeSystem(), isolate_client("orders-*")
    injection = begun(system, fault)
    system.brokers[1].links.block(["broker 2"], "both")
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert [rule["peers"] for rule in system.brokers[1].own_links.state.rules] == ["broker 2"]


def test_a_program_is_killed_when_its_request_is_held_and_started_again() -> None:
    system, fault = FakeSystem(), kill_program("billing", before="OffsetCommit", nth=3)
    injection = begun(system, fault)
    rules = [rule for broker in system.brokers.values() for rule in broker.own_rules.armed]
    assert [rule.what["action"] for rule in rules] == ["drop"] * 3
    fault.advance(system, injection, 10)
    assert system.billing.state == RUNNING
    rules[1].fire()
    fault.advance(system, injection, 20)
    assert system.billing.state == DEAD
    assert not any(rule.armed for rule in rules)  # none waits for the program that is started again
    found = fault.probe(system, injection)
    assert found.proved
    assert list(found.facts["request"]) == ["2"]
    assert not fault.probe_healed(system, injection).proved
    fault.heal(system, injection)
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.billing.incarnation == 2
    assert system.undisturbed()


def test_a_program_that_is_not_to_start_again_stays_dead() -> None:
    system, fault = FakeSystem(), kill_program("billing", restart=False)
    injection = begun(system, fault)
    assert fault.probe(system, injection).proved
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.billing.state == DEAD


@pytest.mark.parametrize("fault", [kill_program(), terminate_program("billing")], ids=str)
def test_a_program_that_dies_again_after_its_start_is_not_started_for_ever(fault: Fault) -> None:
    system = FakeSystem()
    injection = begun(system, fault)
    fault.heal(system, injection)
    system.billing.kill()
    fault.heal(system, injection)
    assert system.billing.incarnation == 2
    assert fault.probe_healed(system, injection).proved


def test_a_program_that_ignores_sigterm_is_killed_at_healing() -> None:
    system, fault = FakeSystem(), terminate_program("billing")
    system.billing.ends_slowly = True
    injection = begun(system, fault)
    assert not fault.probe(system, injection).proved
    fault.heal(system, injection)
    fault.heal(system, injection)
    assert system.billing.actions == ["terminate", "kill", "start"]
    assert fault.probe_healed(system, injection).proved


def test_a_program_is_paused_and_continues() -> None:
    system, fault = FakeSystem(), pause_program()
    injection = begun(system, fault)
    assert system.billing.state == PAUSED
    assert fault.probe(system, injection).proved
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.billing.actions == ["pause", "resume"]


def run(system: FakeSystem, fault: Fault) -> Nemesis:
    nemesis = Nemesis(system, in_turn([fault], seed=1))
    for now_ms in range(0, 2_000, 10):
        nemesis.turn(now_ms)
    nemesis.stop()
    nemesis.turn(2_000)
    return nemesis


def test_a_fault_of_a_program_that_has_ended_fails_with_its_last_words() -> None:
    system = FakeSystem()
    system.billing.state = DEAD
    nemesis = run(system, kill_program("billing", before="Produce"))
    (problem,) = nemesis.problems
    assert "had ended by itself: exit code 7; last output: boom" in problem
    assert system.billing.actions == []  # it is the user's to start it


def test_a_program_that_does_not_exist_is_refused_before_anything_is_broken() -> None:
    with pytest.raises(ConfigError, match=r"no program 'biling'; programs: 'billing'"):
        run(FakeSystem(), kill_program("biling"))
    system = FakeSystem()
    system.programs = {}
    with pytest.raises(ConfigError, match="there is no program; start one first"):
        run(system, pause_program())


def test_random_faults_draw_programs_and_refuse_what_needs_a_name() -> None:
    schedule = random_schedule(5, ("kill_program", "pause_program"), 4.0)
    assert {step.fault.kind for step in schedule.steps} <= {"kill_program", "pause_program"}
    with pytest.raises(ConfigError, match="hijack_transactional_id cannot be drawn, because it needs tra"):
        check_drawable(["hijack_transactional_id"])
