"""(A5) Rules of who gets in: what they count, what they refuse, and which fields they take."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.requests import LoginRefused
from harrow.cluster.host.knobs.access_rules import AccessRules


class Lines:
    """A trace that keeps its events."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent, /) -> None:
        self.events.append(event)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        raise AssertionError(f"{level}: {message} {fields}")


def counts(rules: AccessRules) -> list[tuple[int, int]]:
    return [(row["seen"], row["fired"]) for row in rules.report()]


@pytest.mark.parametrize(
    ("refuse", "first", "again"), [("", False, False), ("again", False, True), ("all", True, True)]
)
def test_logins_are_counted_and_refused(refuse: str, first: bool, again: bool) -> None:
    trace = Lines()
    rules = AccessRules(trace)
    rules.add({"event": "login", "user": "alice", "refuse": refuse})
    assert rules.login("alice", again=False, failed=False) is first
    assert rules.login("alice", again=True, failed=False) is again
    assert not rules.login("bob", again=True, failed=False)
    assert not rules.login("alice", again=False, failed=True)
    assert counts(rules) == [(3, 1 + first + again)]
    assert [type(event) for event in trace.events] == [LoginRefused] * (first + again)
    rules.remove()
    assert not rules.login("alice", again=True, failed=False)
    assert [row["armed"] for row in rules.report()] == [False]


def test_tokens_of_one_user_are_expired() -> None:
    rules = AccessRules(Lines())
    rules.add({"event": "login", "user": "alice", "refuse": "token"})
    assert rules.token_expired("alice")
    assert not rules.token_expired("bob")
    assert not rules.login("alice", again=True, failed=False)
    assert counts(rules) == [(1, 1)]


def test_denied_operations_are_counted_by_user_operation_and_resource() -> None:
    rules = AccessRules(Lines())
    what = {"user": "alice", "operations": ["WRITE", "DESCRIBE"], "type": "TOPIC", "name": "orders"}
    rules.add({"event": "denial", **what})
    rules.denied("alice", "WRITE", "TOPIC", "orders")
    rules.denied("alice", "DESCRIBE", "TOPIC", "orders")
    rules.denied("alice", "READ", "TOPIC", "orders")
    rules.denied("alice", "WRITE", "TOPIC", "bills")
    rules.denied("bob", "WRITE", "TOPIC", "orders")
    rules.denied("alice", "WRITE", "GROUP", "orders")
    assert counts(rules) == [(2, 2)]


def test_handshakes_are_counted_by_their_end() -> None:
    rules = AccessRules(Lines())
    first = rules.add({"event": "handshake"})
    rules.handshake(True)
    rules.add({"event": "handshake"})
    rules.handshake(False)
    rules.remove(first)
    rules.handshake(True)
    assert counts(rules) == [(2, 1), (2, 1)]


@pytest.mark.parametrize("fields", [{"event": "logout"}, {"event": "login", "refuse": "some"}])
def test_unknown_events_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="there are none such"):
        AccessRules(Lines()).add(fields)
