"""(A5) Faults of credentials, step by step, on a cluster without processes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fake_system import FakeChange, FakeSystem, remove_part
from harrow import (
    broker,
    expire_certificate,
    expire_token,
    refuse_reauthentication,
    revoke_acl,
    rotate_certificate,
    rotate_credentials,
)
from harrow.cluster.errors import ConfigError
from harrow.faults import Fault, Injection
from harrow.faults.controls import AclRevocation, CertificateChange, ChangeStatus, PasswordChange
from harrow.faults.errors import CapabilityError
from harrow.faults.nemesis import Nemesis
from harrow.faults.planning import ALL_RANDOM, check_drawable, drawn_fault, possible_kinds
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.system import System, take_snapshot
from harrow.faults.targets import one


def begun(system: FakeSystem, fault: Fault) -> Injection:
    injection = fault.resolve(take_snapshot(system), random.Random(1))
    fault.inject(system, injection)
    fault.inject(system, injection)
    fault.advance(system, injection, 10)
    fault.advance(system, injection, 20)
    return injection


def armed(system: FakeSystem) -> list[dict[str, Any]]:
    return [rule.what for own in system.brokers.values() for rule in own.own_rules.armed]


def constantly(status: ChangeStatus) -> Callable[[FakeChange], ChangeStatus]:
    def given(_: FakeChange) -> ChangeStatus:
        return status

    return given


CASES: list[tuple[Fault, list[object], dict[str, Any], object]] = [
    (
        rotate_credentials("alice", password="other"),
        [PasswordChange(user="alice", password="other")],
        {"user": "alice", "refuse": ""},
        "alice",
    ),
    (
        rotate_credentials("alice", password="other", close=False),
        [PasswordChange(user="alice", password="other")],
        {"user": "alice", "refuse": ""},
        (),
    ),
    (
        revoke_acl("alice", "write", "orders"),
        [AclRevocation(user="alice", operation="WRITE", type="TOPIC", name="orders")],
        {"user": "alice", "operations": ("WRITE", "DESCRIBE"), "type": "TOPIC", "name": "orders"},
        (),
    ),
    (
        revoke_acl("alice", "DESCRIBE", transactional_id="billing"),
        [AclRevocation(user="alice", operation="DESCRIBE", type="TRANSACTIONAL_ID", name="billing")],
        {"user": "alice", "operations": ("DESCRIBE",), "type": "TRANSACTIONAL_ID", "name": "billing"},
        (),
    ),
    (refuse_reauthentication("alice"), [], {"user": "alice", "refuse": "again"}, ()),
    (refuse_reauthentication("alice", first_logins=False), [], {"user": "alice", "refuse": "all"}, ()),
    (expire_token("alice"), [], {"user": "alice", "refuse": "token"}, "alice"),
    (expire_certificate(), [CertificateChange(node=node, expired=True) for node in (1, 2, 3)], {}, None),
    (rotate_certificate(ca="new"), [CertificateChange(node=node, trusted=False) for node in (1, 2, 3)], {}, None),
]


@pytest.mark.parametrize(("fault", "changes", "rule", "closed"), CASES, ids=lambda value: str(value)[:40])
def test_a_change_is_made_once_counted_by_each_broker_and_undone(
    fault: Fault, changes: list[object], rule: dict[str, Any], closed: object
) -> None:
    system = FakeSystem()
    fault.check_system(system)
    injection = begun(system, fault)
    assert [change.what for change in system.own_credentials.begun] == changes
    assert armed(system) == [rule] * 3
    assert system.own_credentials.closed == ([] if closed == () else [(node, closed) for node in (1, 2, 3)])
    assert not fault.probe(system, injection).proved
    system.brokers[2].own_rules.armed[0].fire()
    assert fault.probe(system, injection).proved
    assert not fault.probe_healed(system, injection).proved
    fault.heal(system, injection)
    fault.heal(system, injection)
    assert fault.probe_healed(system, injection).proved
    assert system.undisturbed()


def test_a_broker_that_starts_later_counts_too_and_its_connections_are_closed() -> None:
    system, fault = FakeSystem(), expire_token("alice")
    system.brokers[3].kill()
    injection = begun(system, fault)
    assert len(armed(system)) == 2
    system.brokers[3].start()
    fault.advance(system, injection, 30)
    assert len(armed(system)) == 3
    assert system.own_credentials.closed[-1] == (3, "alice")


def test_logins_that_fail_before_the_change_is_made_are_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    system, fault = FakeSystem(), rotate_credentials("alice")
    pending = ChangeStatus(made=False, undone=False, facts={"trouble": "the registry is away"})
    monkeypatch.setattr(FakeChange, "status", constantly(pending))
    injection = begun(system, fault)
    assert not armed(system)
    assert not system.own_credentials.closed
    facts = fault.probe(system, injection).facts
    assert fault.unreached(injection, facts) == "not every running broker decides by it (the registry is away)"
    assert fault.unreached(injection, {**facts, "made": True}) == "no login of alice was refused"


def test_a_change_that_cannot_be_made_fails_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    system, fault = FakeSystem(), revoke_acl("alice", "READ", group="billing")
    failed = ChangeStatus(made=False, undone=True, failed="alice has no READ on group billing")
    monkeypatch.setattr(FakeChange, "status", constantly(failed))
    injection = begun(system, fault)
    assert fault.probe(system, injection).failed == "alice has no READ on group billing"


def test_another_certificate_of_the_same_authority_counts_every_handshake() -> None:
    system, fault = FakeSystem(), rotate_certificate(broker(2))
    injection = begun(system, fault)
    [rule] = system.brokers[2].own_rules.armed
    assert not fault.probe(system, injection).proved
    rule.what["seen"] = 1
    assert fault.probe(system, injection).proved


def test_a_drawn_password_is_in_the_schedule_and_a_replay_has_the_same() -> None:
    system, fault = FakeSystem(), rotate_credentials("alice")
    injection = fault.resolve(take_snapshot(system), random.Random(1))
    assert str(injection.details["password"]).startswith("rotated-")
    step = replace(ScheduledFault(id="1", fault=fault), nodes=(), details=injection.details, fired_ms=0)
    nemesis = Nemesis(system, Schedule(steps=(step,), seed=3))
    nemesis.turn(0)
    [change] = system.own_credentials.begun
    assert change.what == PasswordChange(user="alice", password=injection.details["password"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rotate_credentials(""), "expected a name"),
        (lambda: revoke_acl("alice", "WRITE"), "expected a topic, a group or a transactional_id"),
        (lambda: revoke_acl("alice", "WRITE", "orders", group="billing"), "and one of these"),
        (lambda: rotate_certificate(ca="other"), "expected 'same' or 'new'"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def test_an_unknown_user_is_refused_before_anything_is_broken() -> None:
    with pytest.raises(ConfigError, match="there is no user bob"):
        Nemesis(FakeSystem(), Schedule(steps=(ScheduledFault(id="1", fault=rotate_credentials("bob")),), seed=3))


def test_a_cluster_without_users_lacks_the_capability() -> None:
    system = FakeSystem()
    remove_part(system, System.credentials)
    with pytest.raises(CapabilityError, match="'passwords'"):
        Nemesis(system, Schedule(steps=(ScheduledFault(id="1", fault=rotate_credentials("alice")),), seed=3))


def test_random_faults_have_certificates_where_these_can_change_and_users_never() -> None:
    kinds = ("expire_certificate", "rotate_certificate")
    assert not set(kinds) & set(ALL_RANDOM)
    assert possible_kinds(kinds, frozenset({"certificates"})) == kinds
    assert possible_kinds(kinds, frozenset({"process"})) == ()
    assert drawn_fault("expire_certificate", one) == expire_certificate()
    with pytest.raises(ConfigError, match="rotate_credentials"):
        check_drawable(["rotate_credentials"])
