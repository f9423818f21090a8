"""Responses that are lost although the request took effect: the fault behind retries and duplicates.

Owns: the rules, set over the control socket, and the responses that they dropped. A rule counts the responses of its
API to clients that match (`request_rules.py`), and drops the n-th, once; the server then resets the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..seam import Clock, Peer, Trace
from .request_rules import RequestRule, RequestRules


class LostResponses:
    """The armed rules of one host, and what fired."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        self._clock = clock
        self._trace = trace
        self._rules = RequestRules[RequestRule]()
        self._fired: list[dict[str, Any]] = []

    def arm(self, api_key: int, *, nth: int = 1, client: str = "*") -> int:
        """Add a rule; returns its id."""
        rule = RequestRule(id=self._rules.next_id(), api_key=api_key, nth=nth, client=client)
        self._rules.arm(rule)
        return rule.id

    def clear(self, rule_id: int | None = None) -> None:
        """Disarm one rule, or all."""
        self._rules.clear(rule_id)

    def lose(self, peer: Peer, api_key: int) -> bool:
        """Count one response; True when a rule drops it. Without rules: one test."""
        rule = self._rules.fire(peer, api_key)
        if rule is None:
            return False
        self._fired.append(
            {"id": rule.id, "t_ns": self._clock.monotonic_ns(), "wall_ms": self._clock.wall_ms(),
             "client": peer.name, "peer": str(peer), "api_key": api_key}
        )  # fmt: skip
        self._trace.emit("response.lost", rule=rule.id, peer=str(peer), api_key=api_key)
        return True

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        """The control operations."""
        return {
            "responses": lambda _: {"rules": self._rules.report(), "fired": list(self._fired)},
            "responses.lose": self._op_lose,
            "responses.clear": self._rules.op_clear,
        }

    def _op_lose(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        nth, client = int(fields.get("nth", 1)), str(fields.get("client", "*"))
        return {"id": self.arm(int(fields["api_key"]), nth=nth, client=client)}
