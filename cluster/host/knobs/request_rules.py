"""Rules that act once, on the n-th matching request or response of an API: counting, arming, clearing.

Owns: `RequestRule`, and `RequestRules`, the armed rules of one kind on one host. A pattern without a space is a
client's name (`orders-*`), with one a peer (`broker 2`). `lost_responses.py` and `request_faults.py` say what a rule
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from ...errors import ConfigError
from ..seam import Peer
from .seen_clients import SeenClients


@dataclass(slots=True, kw_only=True)
class RequestRule:
    """Act on the `nth` request or response of `api_key` of a peer that matches `client`."""

    id: int
    api_key: int
    nth: int
    client: str
    seen: int = 0
    fired: bool = False

    def __post_init__(self) -> None:
        if self.nth < 1:
            raise ConfigError(f"nth={self.nth}: expected 1 or more")

    def matches(self, peer: Peer, api_key: int) -> bool:
        """True when this request or response counts."""
        if api_key != self.api_key:
            return False
        if " " in self.client:
            return fnmatchcase(str(peer), self.client)
        return peer.kind == "client" and fnmatchcase(peer.name, self.client)


RuleT = TypeVar("RuleT", bound=RequestRule)


class RequestRules(Generic[RuleT]):
    """The rules of one kind: all that were ever armed, and those that still are."""

    def __init__(self) -> None:
        self._rules: dict[int, RuleT] = {}
        self._armed: list[RuleT] = []
        self._seen: dict[int, SeenClients] = {}

    def next_id(self) -> int:
        """Return the id of the next rule."""
        return len(self._rules) + 1

    def arm(self, rule: RuleT) -> None:
        """Add a rule."""
        self._rules[rule.id] = rule
        self._seen[rule.id] = SeenClients(rule.api_key)
        self._armed.append(rule)

    def clear(self, rule_id: int | None = None) -> None:
        """Disarm one rule, or all."""
        self._armed = [rule for rule in self._armed if rule_id is not None and rule.id != rule_id]

    def fire(self, peer: Peer, api_key: int) -> RuleT | None:
        """Count one request or response; disarm and return the rule that acts on it. Without rules: one test."""
        if not self._armed:
            return None
        due: RuleT | None = None
        for rule in self._armed:
            self._seen[rule.id].note(peer, api_key)
            if rule.matches(peer, api_key):
                rule.seen += 1
                if rule.seen >= rule.nth and due is None:
                    due = rule
        if due is not None:
            due.fired = True
            self._armed.remove(due)
        return due

    def op_clear(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """The control operation that disarms the rule with this id, or all."""
        rule_id = request.get("id")
        self.clear(None if rule_id is None else int(rule_id))
        return {}

    def report(self) -> list[dict[str, Any]]:
        """Return every rule as plain values, with what it counted."""
        return [
            {field.name: getattr(rule, field.name) for field in fields(rule)}
            | {"armed": rule in self._armed}
            | self._seen[rule.id].to_json()
            for rule in self._rules.values()
        ]
