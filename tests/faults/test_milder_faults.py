"""Each kind of fault says what its milder forms are, or that it has none; milder and milder forms come to an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest
from harrow.faults import (
    Fault,
    ScheduledFault,
    isolate,
    kill,
    kill_program,
    leader,
    one,
    pause,
    pause_program,
    slow_link,
    terminate,
    terminate_program,
)
from harrow.faults.fault_kinds import FAULTS, OWN_KINDS, fault_from_json
from harrow.faults.milder import MILDER, milder_forms
from harrow.harness.search.shrinking import later_by_halves, milder

GIVEN: dict[str, Any] = {
    "target": leader("orders"),
    "peer": one,
    "topic": "orders",
    "group": "billing",
    "user": "alice",
    "client": "billing*",
    "transactional_id": "billing",
    "point": "log.after-append",
    "operation": "READ",
}
STRONGER: tuple[dict[str, Any], ...] = (
    {},
    {"clients": True},
    {"kill": True},
    {"count": 9},
    {"crashes": 3},
    {"times": 3, "power_loss": True},
    {"restart": False},
    {"silent": True},
)
STEPS_MOST = 40


def examples(kind: type[Fault]) -> Iterator[Fault]:
    """Yield faults of a kind: with no more than it needs, and with each stronger parameter that it has."""
    names = {row.name for row in fields(kind)}
    needed = [row.name for row in fields(kind) if row.default is MISSING and row.default_factory is MISSING]
    needed += {"failpoint": ["point"], "revoke_acl": ["topic"]}.get(kind.kind, [])
    for more in STRONGER:
        if more.keys() <= names:
            yield kind(**{name: GIVEN[name] for name in needed}, **more)


def test_every_kind_says_its_milder_forms_or_that_it_has_none() -> None:
    assert {kind for name, kind in FAULTS.items() if name in OWN_KINDS} == set(MILDER)


@pytest.mark.parametrize("name", sorted(OWN_KINDS))
def test_milder_forms_can_be_recorded_and_come_to_an_end(name: str) -> None:
    for fault in examples(FAULTS[name]):
        seen, level = {str(fault)}, [fault]
        for _ in range(STEPS_MOST):
            level = [form for stronger in level for form in milder_forms(stronger, {})]
            for form in level:
                assert fault_from_json(form.to_json()) == form
            assert fault not in level, f"{fault} comes back"
            level = list({str(form): form for form in level}.values())
            if not level:
                break
            seen |= {str(form) for form in level}
        assert not level, f"{fault} has always a milder form: {level}"


@pytest.mark.parametrize(
    ("fault", "drawn", "forms"),
    [
        (kill(one, seconds=2), {}, [pause(one, seconds=2), terminate(one, seconds=2)]),
        (pause(one), {}, []),
        (kill_program("a", seconds=1), {}, [pause_program("a", seconds=1), terminate_program("a", seconds=1)]),
        (kill_program("a", before="OffsetCommit"), {}, []),
        (isolate(one, direction="in"), {"mode": "reset"}, [isolate(one, direction="in", peers="any")]),
        (slow_link(one, peers="any"), {"delay_ms": 120}, [slow_link(one, peers="any", delay_ms=60)]),
        (slow_link(one, peers="any", delay_ms=39), {}, []),
    ],
    ids=str,
)
def test_forms(fault: Fault, drawn: dict[str, Any], forms: list[Fault]) -> None:
    assert list(milder_forms(fault, drawn)) == forms


def test_a_milder_step_fires_when_the_step_fired_and_resolves_its_role_again() -> None:
    step = ScheduledFault(
        id="1", fault=slow_link(one, peers="any"), nodes=(2,), duration_ms=70, details={"delay_ms": 50}, fired_ms=9
    )
    (form,) = milder(step)
    assert (form.fault, form.nodes, form.details) == (slow_link(one, peers="any", delay_ms=25), None, None)
    assert (form.trigger, form.at_ms, form.duration_ms) == ("traffic", 9, 70)


def test_a_later_step_keeps_its_brokers_and_never_leaves_the_traffic() -> None:
    step = ScheduledFault(id="1", fault=kill(one), nodes=(2,), duration_ms=70, fired_ms=100)
    assert [later.fired_ms for later in later_by_halves(step, 500)] == [300, 200]
    assert [later.fired_ms for later in later_by_halves(step, 150)] == [125]
    assert not list(later_by_halves(step, 90))
