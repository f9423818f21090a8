"""Responses that are lost although the request took effect: the fault behind retries and duplicates.

Owns: the rules, set over the control socket, and the responses that they dropped. A rule counts the responses of its
API to clients that match, and drops the n-th, once; the server then resets the connection. A pattern without a space
is a client's name (`orders-*`), with one a peer (`broker 2`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...errors import ConfigError
from ..seam import Clock, Peer, Trace


@dataclass(slots=True, kw_only=True)
class LostResponseRule:
    """Drop the `nth` response of `api_key` to a peer that matches `client`."""

    id: int
    api_key: int
    nth: int
    client: str
    seen: int = 0
    fired: bool = False

    def matches(self, peer: Peer, api_key: int) -> bool:
        """True when this response counts."""
        if api_key != self.api_key:
            return False
        if " " in self.client:
            return fnmatchcase(str(peer), self.client)
        return peer.kind == "client" and fnmatchcase(peer.name, self.client)


class LostResponses:
    """The armed rules of one host, and what fired."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        self._clock = clock
        self._trace = trace
        self._rules: dict[int, LostResponseRule] = {}
        self._live: list[LostResponseRule] = []
        self._fired: list[dict[str, Any]] = []

    def arm(self, api_key: int, *, nth: int = 1, client: str = "*") -> int:
        """Add a rule; returns its id."""
        if nth < 1:
            raise ConfigError(f"nth={nth}: expected 1 or more")
        rule = LostResponseRule(id=len(self._rules) + 1, api_key=api_key, nth=nth, client=client)
        self._rules[rule.id] = rule
        self._live.append(rule)
        return rule.id

    def clear(self, rule_id: int | None = None) -> None:
        """Disarm one rule, or all."""
        self._live = [rule for rule in self._live if rule_id is not None and rule.id != rule_id]

    def lose(self, peer: Peer, api_key: int) -> bool:
        """Count one response; True when a rule drops it. Without rules: one test."""
        if not self._live:
            return False
        eaten_by: LostResponseRule | None = None
        for rule in self._live:
            if rule.matches(peer, api_key):
                rule.seen += 1
                if rule.seen >= rule.nth and eaten_by is None:
                    eaten_by = rule
        if eaten_by is None:
            return False
        eaten_by.fired = True
        self._live.remove(eaten_by)
        self._fired.append(
            {"id": eaten_by.id, "t_ns": self._clock.monotonic_ns(), "wall_ms": self._clock.wall_ms(),
             "client": peer.name, "peer": str(peer), "api_key": api_key}
        )  # fmt: skip
        self._trace.emit("response.lost", rule=eaten_by.id, peer=str(peer), api_key=api_key)
        return True

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        """The control operations."""
        return {
            "responses": self._op_report, "responses.lose": self._op_lose, "responses.clear": self._op_clear
        }  # fmt: skip

    def _op_lose(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        nth, client = int(fields.get("nth", 1)), str(fields.get("client", "*"))
        return {"id": self.arm(int(fields["api_key"]), nth=nth, client=client)}

    def _op_clear(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        rule_id = fields.get("id")
        self.clear(None if rule_id is None else int(rule_id))
        return {}

    def _op_report(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        rules = [
            {"id": r.id, "api_key": r.api_key, "nth": r.nth, "client": r.client, "seen": r.seen,
             "fired": r.fired, "armed": r in self._live}
            for r in self._rules.values()
        ]  # fmt: skip
        return {"rules": rules, "fired": list(self._fired)}
