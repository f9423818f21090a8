"""`rules.add`, `rules.list` and `rules.remove`: the same for every kind of rule of a host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.simulated import Machine, World

RULES: Mapping[str, dict[str, Any]] = {
    "request": {"action": "lose", "api_key": 0},
    "response": {"action": "hold", "api_key": 0},
    "access": {"event": "login", "user": "alice"},
    "failpoint": {"name": "log.after-append", "action": "delay"},
    "disk": {"operation": "write", "error": "EIO", "path": "*/no/*"},
    "clock": {"error": "jump", "by_ms": 5},
}
Call = Callable[..., dict[str, Any]]


@pytest.fixture
def call() -> Call:
    """The control operations of a host without any rule."""
    return Machine(World(1), "broker-1", Peer("broker", "1")).boot().control.call


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_is_armed_until_it_is_removed(call: Call, kind: str) -> None:
    rule = call("rules.add", kind=kind, **RULES[kind])["id"]
    [row] = call("rules.list", kind=kind)["rules"]
    assert (row["id"], row["armed"], row["fired"]) == (rule, True, 0)
    call("rules.remove", kind=kind, id=rule)
    call("rules.remove", kind=kind, id=rule)
    [row] = call("rules.list", kind=kind)["rules"]
    assert (row["id"], row["armed"]) == (rule, False)


def test_the_rules_of_all_kinds_are_listed_with_their_kinds(call: Call) -> None:
    for kind, fields in RULES.items():
        call("rules.add", kind=kind, **fields)
    listed = [row["rule"] for row in call("rules.list")["rules"]]
    assert listed == ["request", "response", "access", "failpoint", "clock", "disk"]
    for kind in RULES:
        call("rules.remove", kind=kind)
    assert not any(row["armed"] for row in call("rules.list")["rules"])


@pytest.mark.parametrize("operation", ["rules.add", "rules.list", "rules.remove"])
def test_a_kind_that_the_host_does_not_have_is_named(call: Call, operation: str) -> None:
    with pytest.raises(ConfigError, match="rules of the kind 'requests': there are access, clock, disk, failpoint"):
        call(operation, kind="requests")
