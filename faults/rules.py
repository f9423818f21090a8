"""Rules that wait in a broker until its code or its traffic reaches them: armed once, observed, disarmed.

A rule belongs to the incarnation of the broker in which it was armed: a later incarnation does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .evidence import Evidence
from .process_faults import hit_once, is_over
from .rule_kinds import ArmedRule, Rule
from .spec import FaultState, Injection
from .system import Broker, System


def arm_once(system: System, injection: Injection, rule: Rule, nodes: Iterable[int] | None = None) -> None:
    """Arm `rule` in each broker that has none of this fault yet: of `nodes`, or of the injection."""
    rules = FaultState.of(injection).rules

    def keep(broker: Broker) -> None:
        assert broker.node not in rules, f"{broker} has a rule of this fault"
        rules[broker.node] = broker.rules.arm(rule)

    hit_once(system, injection, keep, nodes)


def armed_in(injection: Injection) -> list[tuple[int, int, ArmedRule]]:
    """Return (node id, incarnation, rule) of each rule that was armed."""
    state = FaultState.of(injection)
    assert state.rules.keys() <= state.incarnations.keys(), "a rule is armed in an incarnation that was not noted"
    return [(node, state.incarnations[node], rule) for node, rule in state.rules.items()]


def fired(system: System, injection: Injection, *, death_counts: bool = True) -> dict[str, dict[str, Any]]:
    """Return what each rule did, by node id; with `death_counts` an incarnation that ended was hit by it."""
    facts: dict[str, dict[str, Any]] = {}
    for node, incarnation, rule in armed_in(injection):
        status = system.broker(node).status()
        if is_over(status, incarnation):
            facts[str(node)] = {**status.to_json(), "fired": int(death_counts)}
        else:
            found = rule.status()
            facts[str(node)] = {**found.facts, "fired": found.fired}
    return facts


def all_fired(system: System, injection: Injection, name: str, *, death_counts: bool = True) -> Evidence:
    """Observe whether the rule of every broker did something; `name`: of what it did, in the facts."""
    facts = fired(system, injection, death_counts=death_counts)
    proved = bool(facts) and all(fact["fired"] for fact in facts.values())
    return Evidence(proved=proved, facts={name: facts})


def disarm(system: System, injection: Injection) -> None:
    """Disarm every rule whose incarnation has not ended."""
    for node, incarnation, rule in armed_in(injection):
        if not is_over(system.broker(node).status(), incarnation):
            rule.disarm()


def disarmed(system: System, injection: Injection, running: Evidence, *, over: bool = True) -> Evidence:
    """Observe whether no rule is armed; with `running` and `over` as further conditions."""
    armed = [
        node
        for node, incarnation, rule in armed_in(injection)
        if not is_over(system.broker(node).status(), incarnation) and rule.status().armed
    ]
    return Evidence(proved=running.proved and over and not armed, facts={**running.facts, "armed": armed})
