"""Faults of single requests: refuse, lose, drop, delay or duplicate requests of an API, from the n-th on.

Owns: the rules, set over the control socket. A rule counts the requests of its API from clients that match
(`request_rules.py`), and acts on them from the n-th on:

    refuse     the request is not served, and its response has the error code `error` where Kafka has it
    lose       the request is not served, and its connection is reset
    drop       neither it nor any later request of its connection is served or answered; the connection stays open
    delay      the request, and those behind it on its connection, are served `delay_ms` later
    duplicate  the request is served twice in succession, and the second response does not leave

A proxy forwards a request where a broker serves it. A refused request is served, or forwarded, where its error belongs
into a response that only its broker can make (`wire/refusals.py`), and where a proxy keeps a fetch session alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, ErrorCode
from ...events.requests import RequestDelayed, RequestDropped, RequestDuplicated, RequestLost, RequestRefused
from ..seam import FactsReader, Peer, RequestBody, Trace
from .request_rules import RequestRule, RequestRules, action_in, rule_fields

REFUSE, LOSE, DROP, DELAY, DUPLICATE = "refuse", "lose", "drop", "delay", "duplicate"
EVENTS = {
    REFUSE: RequestRefused,
    LOSE: RequestLost,
    DROP: RequestDropped,
    DELAY: RequestDelayed,
    DUPLICATE: RequestDuplicated,
}
REQUEST_DELAY_MS_MOST = 600_000
ERROR_NUMBERS = frozenset(int(code) for code in ErrorCode) - {0}


@dataclass(slots=True, kw_only=True)
class RequestFaultRule(RequestRule):
    """Do `action` with requests of `api_key`."""

    action: str
    error: int = 0
    delay_ms: int = 0

    def __post_init__(self) -> None:
        RequestRule.__post_init__(self)  # super() does not work in a class with slots
        if self.action == REFUSE and self.error not in ERROR_NUMBERS:
            raise ConfigError(f"error={self.error}: expected the number of one of Kafka's error codes")
        if self.action == DELAY and not 0 < self.delay_ms <= REQUEST_DELAY_MS_MOST:
            raise ConfigError(f"delay_ms={self.delay_ms}: expected a number from 1 to {REQUEST_DELAY_MS_MOST}")


class RequestFaults(RequestRules[RequestFaultRule]):
    """The armed rules of one host, and what fired."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def fire(self, peer: Peer, request: RequestBody, reader: FactsReader) -> RequestFaultRule | None:
        """Count one request; return the rule that acts on it. Without rules: one test."""
        rule = super().fire(peer, request, reader)
        if rule is not None:
            event = EVENTS[rule.action]
            self._trace.emit(event(rule=rule.id, peer=str(peer), api_key=request.api_key, error=rule.error))
        return rule

    def add(self, fields: Mapping[str, Any]) -> int:
        """Arm a rule; return its id. ConfigError for an action that there is not, and for other fields."""
        action = action_in(fields, EVENTS, "request")
        rule = RequestFaultRule(
            id=self.next_id(),
            **rule_fields(fields),
            action=action,
            error=int(fields["error"]) if action == REFUSE else 0,
            delay_ms=int(fields["delay_ms"]) if action == DELAY else 0,
        )
        self.arm(rule)
        return rule.id
