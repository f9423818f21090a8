"""Requests that a broker refuses without serving them: what a client does with an error code.

Owns: the rules, set over the control socket. A rule counts the requests of its API from clients that match
(`request_rules.py`), and has the n-th refused with its error code, once: nothing of the request takes effect, and its
connection stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, ErrorCode
from ..seam import Peer, Trace
from .request_rules import RequestRule, RequestRules

ERROR_NUMBERS = frozenset(int(code) for code in ErrorCode) - {0}


def check_error_number(error: int) -> None:
    """Raise ConfigError for a number that is no error code of Kafka's."""
    if error not in ERROR_NUMBERS:
        raise ConfigError(f"error={error}: expected the number of one of Kafka's error codes")


@dataclass(slots=True, kw_only=True)
class RefusedRequestRule(RequestRule):
    """Refuse the `nth` request of `api_key` from a peer that matches `client` with the error code `error`."""

    error: int

    def __post_init__(self) -> None:
        RequestRule.__post_init__(self)  # super() does not work in a class with slots
        check_error_number(self.error)


class RefusedRequests:
    """The armed rules of one host, and what fired."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rules = RequestRules[RefusedRequestRule]()

    def arm(self, api_key: int, *, error: int, nth: int = 1, client: str = "*") -> int:
        """Add a rule; returns its id."""
        rule = RefusedRequestRule(
            id=self._rules.next_id(), api_key=api_key, error=error, nth=nth, client=client
        )
        self._rules.arm(rule)
        return rule.id

    def clear(self, rule_id: int | None = None) -> None:
        """Disarm one rule, or all."""
        self._rules.clear(rule_id)

    def refuse(self, peer: Peer, api_key: int) -> int:
        """Count one request; return the error code that a rule wants, 0 for none. Without rules: one test."""
        rule = self._rules.fire(peer, api_key)
        if rule is None:
            return 0
        self._trace.emit(
            "request.refused", rule=rule.id, peer=str(peer), api_key=api_key, error=rule.error
        )
        return rule.error

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        """The control operations."""
        return {
            "requests": lambda _: {"rules": self._rules.report()},
            "requests.refuse": self._op_refuse,
            "requests.clear": self._rules.op_clear,
        }

    def _op_refuse(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        nth, client = int(fields.get("nth", 1)), str(fields.get("client", "*"))
        rule = self.arm(int(fields["api_key"]), error=int(fields["error"]), nth=nth, client=client)
        return {"id": rule}
