"""Faults of responses whose request took effect: a lost one leads to retries and duplicates, a failed one to doubt.

Owns: the rules, set over the control socket. A rule counts the responses of its API to clients that match
(`request_rules.py`), without those of requests that a fault refused, and acts on them from the n-th on:

    lose   the response does not leave, and its connection is reset
    hold   neither it nor any later response of its connection leaves; the connection stays open, and its later
           requests are not served
    fail   the response has the error code `error`, as Kafka gives it, although the request took effect

A broker and a proxy act alike: the tap has what took effect, and the error or the loss of the response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ...events import TraceEvent
from ...events.requests import ResponseFailed, ResponseHeld, ResponseLost
from ..seam import HOLD_RESPONSE, LOSE_RESPONSE, FactsReader, Peer, RequestBody, Trace
from .request_faults import ERROR_NUMBERS
from .request_rules import RequestRule, RequestRules, action_in, rule_fields

FAIL_RESPONSE = "fail"


@dataclass(slots=True, kw_only=True)
class ResponseFaultRule(RequestRule):
    """Do `action` with responses to `api_key`."""

    action: str
    error: int = 0

    def __post_init__(self) -> None:
        RequestRule.__post_init__(self)  # super() does not work in a class with slots
        if self.action == FAIL_RESPONSE and self.error not in ERROR_NUMBERS:
            raise ConfigError(f"error={self.error}: expected the number of one of Kafka's error codes")


EVENTS: Mapping[str, Callable[[ResponseFaultRule, str, int], TraceEvent]] = {
    LOSE_RESPONSE: lambda rule, peer, api_key: ResponseLost(rule=rule.id, peer=peer, api_key=api_key),
    HOLD_RESPONSE: lambda rule, peer, api_key: ResponseHeld(rule=rule.id, peer=peer, api_key=api_key),
    FAIL_RESPONSE: lambda rule, peer, api_key: ResponseFailed(
        rule=rule.id, peer=peer, api_key=api_key, error=rule.error
    ),
}
"""The event of each action."""


class ResponseFaults(RequestRules[ResponseFaultRule]):
    """The armed rules of one host, and what fired."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def fire(self, peer: Peer, request: RequestBody, reader: FactsReader) -> ResponseFaultRule | None:
        """Count one response; return the rule that acts on it. Without rules: one test."""
        rule = super().fire(peer, request, reader)
        if rule is not None:
            self._trace.emit(EVENTS[rule.action](rule, str(peer), request.api_key))
        return rule

    def add(self, fields: Mapping[str, Any]) -> int:
        """Arm a rule; return its id. ConfigError for an action that there is not, and for other fields."""
        action = action_in(fields, EVENTS, "response")
        rule = ResponseFaultRule(
            id=self.next_id(),
            action=action,
            error=int(fields["error"]) if action == FAIL_RESPONSE else 0,
            **rule_fields(fields),
        )
        self.arm(rule)
        return rule.id
