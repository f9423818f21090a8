"""Requests that a broker refuses without serving them: what a client does with an error code.

Owns: the rules, set over the control socket. A rule counts the requests of its API from clients that match, and has the
n-th refused with its error code, once: nothing of the request takes effect, and its connection stays open. A pattern
without a space is a client's name (`orders-*`), with one a peer (`broker 2`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...errors import ConfigError, ErrorCode
from ..seam import Peer, Trace


@dataclass(slots=True, kw_only=True)
class RefusedRequestRule:
    """Refuse the `nth` request of `api_key` from a peer that matches `client` with the error code `error`."""

    id: int
    api_key: int
    error: int
    nth: int
    client: str
    seen: int = 0
    fired: bool = False

    def matches(self, peer: Peer, api_key: int) -> bool:
        """True when this request counts."""
        if api_key != self.api_key:
            return False
        if " " in self.client:
            return fnmatchcase(str(peer), self.client)
        return peer.kind == "client" and fnmatchcase(peer.name, self.client)


class RefusedRequests:
    """The armed rules of one host, and what fired."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rules: dict[int, RefusedRequestRule] = {}
        self._live: list[RefusedRequestRule] = []

    def arm(self, api_key: int, *, error: int, nth: int = 1, client: str = "*") -> int:
        """Add a rule; returns its id."""
        if nth < 1:
            raise ConfigError(f"nth={nth}: expected 1 or more")
        if error not in {int(code) for code in ErrorCode} - {0}:
            raise ConfigError(f"error={error}: expected the number of one of Kafka's error codes")
        rule = RefusedRequestRule(
            id=len(self._rules) + 1, api_key=api_key, error=error, nth=nth, client=client
        )
        self._rules[rule.id] = rule
        self._live.append(rule)
        return rule.id

    def clear(self, rule_id: int | None = None) -> None:
        """Disarm one rule, or all."""
        self._live = [rule for rule in self._live if rule_id is not None and rule.id != rule_id]

    def refuse(self, peer: Peer, api_key: int) -> int:
        """Count one request; return the error code that a rule wants, 0 for none. Without rules: one test."""
        if not self._live:
            return 0
        due: RefusedRequestRule | None = None
        for rule in self._live:
            if rule.matches(peer, api_key):
                rule.seen += 1
                if rule.seen >= rule.nth and due is None:
                    due = rule
        if due is None:
            return 0
        due.fired = True
        self._live.remove(due)
        self._trace.emit(
            "request.refused", rule=due.id, peer=str(peer), api_key=api_key, error=due.error
        )
        return due.error

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        """The control operations."""
        return {
            "requests": self._op_report, "requests.refuse": self._op_refuse, "requests.clear": self._op_clear
        }  # fmt: skip

    def _op_refuse(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        nth, client = int(fields.get("nth", 1)), str(fields.get("client", "*"))
        rule = self.arm(int(fields["api_key"]), error=int(fields["error"]), nth=nth, client=client)
        return {"id": rule}

    def _op_clear(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        rule_id = fields.get("id")
        self.clear(None if rule_id is None else int(rule_id))
        return {}

    def _op_report(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "rules": [
                {"id": r.id, "api_key": r.api_key, "error": r.error, "nth": r.nth, "client": r.client,
                 "seen": r.seen, "fired": r.fired, "armed": r in self._live}
                for r in self._rules.values()
            ]
        }  # fmt: skip
