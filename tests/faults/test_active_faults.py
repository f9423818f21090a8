"""The phases of an injected fault: each transition that there is, and no other one (K)."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from harrow.faults import ScheduledFault, kill, lose_response, one
from harrow.faults.active_fault import NEXT, ActiveFault, Phase
from harrow.faults.spec import Fault, FaultState, Injection

PATHS = (
    (Phase.HOLDS, Phase.HEALS, Phase.OVER),
    (Phase.HEALS, Phase.OVER),
)


def active(fault: Fault) -> ActiveFault:
    injection = Injection(id="1", fault=fault, nodes=(1,), duration_ms=0)
    return ActiveFault(step=ScheduledFault(id="1", fault=fault), injection=injection, deadline_ms=0)


@pytest.mark.parametrize("path", PATHS)
def test_a_fault_goes_through_its_phases_in_order(path: tuple[Phase, ...]) -> None:
    fault = active(kill(one))
    for phase in path:
        fault.enter(phase)
    assert fault.phase is Phase.OVER


def test_no_other_transition_is_possible() -> None:
    allowed = {pair for path in PATHS for pair in itertools.pairwise((Phase.TAKES_EFFECT, *path))}
    assert allowed == {(phase, after) for phase, following in NEXT.items() for after in following}
    for before, after in itertools.product(Phase, Phase):
        fault = active(kill(one))
        fault.phase = before
        if (before, after) not in allowed:
            with pytest.raises(AssertionError, match=r"kill\(one\) cannot go from"):
                fault.enter(after)


def test_only_a_fault_without_effect_waits_for_traffic() -> None:
    lost = active(lose_response("Produce"))
    assert lost.waits
    assert lost.has_begun
    lost.enter(Phase.HEALS)
    assert not lost.waits
    assert not active(kill(one)).has_begun


def test_a_copy_of_an_injection_has_the_state_of_the_injection() -> None:
    injection = active(kill(one)).injection
    FaultState.of(injection).incarnations[1] = 4
    assert FaultState.of(dataclasses.replace(injection, nodes=(1, 2))).incarnations == {1: 4}
    assert FaultState.of(active(kill(one)).injection).incarnations == {}
