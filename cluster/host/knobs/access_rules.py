"""Rules of who gets in: logins, TLS handshakes and denied operations that are counted, and logins that are refused.

Owns: the rules of the kind `access`, set over the control socket. A rule counts events from the time when it is armed:

    event      `seen`                                   `fired`
    ---------  ---------------------------------------  ---------------------------------------------------------
    login      logins of `user` that ended, again too   those that failed for any reason, or that the rule refused
    denial     operations of `user` that were denied    the same: one of `operations` on the resource
    handshake  handshakes of accepted links             those that failed

    refuse     which logins of `user` a rule of the event `login` refuses
    ---------  --------------------------------------------------------------------------------
    (empty)    none: the rule counts
    again      each re-authentication (KIP-368)
    all        each login, the first one of a connection too
    token      each login with a token of OAUTHBEARER, as if the token had expired

What may fail: ConfigError for an event or a refusal that there is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ConfigError
from ...events.requests import LoginRefused, TokenRefused
from ..seam import Trace
from .rules import RuleId

LOGIN, DENIAL, HANDSHAKE = "login", "denial", "handshake"
COUNTED, AGAIN, ALL, TOKEN = "", "again", "all", "token"


@dataclass(slots=True, kw_only=True)
class AccessRule:
    """One rule, and what it counted."""

    id: int
    event: str
    user: str = ""
    refuse: str = COUNTED
    operations: tuple[str, ...] = ()
    type: str = ""
    name: str = ""
    seen: int = 0
    fired: int = 0


class AccessRules:
    """The rules of one host."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._rules: dict[int, AccessRule] = {}
        self._armed: dict[int, AccessRule] = {}

    # ----------------------------------------------------------------- events

    def login(self, user: str, *, again: bool, failed: bool) -> bool:
        """Count a login that has ended; True when a rule refuses it."""
        refused = False
        for rule in self._of(LOGIN):
            if rule.user != user or rule.refuse == TOKEN:
                continue
            rule.seen += 1
            hit = not failed and (rule.refuse == ALL or (again and rule.refuse == AGAIN))
            rule.fired += failed or hit
            refused = refused or hit
        if refused:
            self._trace.emit(LoginRefused(user=user, again=again))
        return refused

    def token_expired(self, user: str) -> bool:
        """Count a login of `user` with a token; True when a rule lets the token be expired."""
        rules = [rule for rule in self._of(LOGIN) if rule.user == user and rule.refuse == TOKEN]
        for rule in rules:
            rule.seen += 1
            rule.fired += 1
        if rules:
            self._trace.emit(TokenRefused(user=user))
        return bool(rules)

    def denied(self, user: str, operation: str, kind: str, name: str) -> None:
        """Count an operation that was denied."""
        for rule in self._of(DENIAL):
            if operation in rule.operations and (rule.user, rule.type, rule.name) == (user, kind, name):
                rule.seen += 1
                rule.fired += 1

    def awaits_denials(self, user: str) -> bool:
        """Whether a rule counts denied operations of `user`."""
        return any(rule.user == user for rule in self._of(DENIAL))

    def handshake(self, failed: bool, /) -> None:
        """Count a handshake of an accepted link."""
        for rule in self._of(HANDSHAKE):
            rule.seen += 1
            rule.fired += failed

    def _of(self, event: str) -> Iterator[AccessRule]:
        return (rule for rule in self._armed.values() if rule.event == event)

    # ------------------------------------------------------------------ rules

    def add(self, fields: Mapping[str, Any]) -> int:
        """Arm a rule; return its id."""
        user, refuse, kind, name = (str(fields.get(field, "")) for field in ("user", "refuse", "type", "name"))
        rule = AccessRule(
            id=len(self._rules) + 1,
            event=str(fields["event"]),
            user=user,
            refuse=refuse,
            operations=tuple(map(str, fields.get("operations", ()))),
            type=kind,
            name=name,
        )
        if rule.event not in (LOGIN, DENIAL, HANDSHAKE) or rule.refuse not in (COUNTED, AGAIN, ALL, TOKEN):
            raise ConfigError(f"event={rule.event!r}, refuse={rule.refuse!r} of an access rule: there are none such")
        self._rules[rule.id] = self._armed[rule.id] = rule
        return rule.id

    def report(self) -> list[dict[str, Any]]:
        """Return every rule as plain values, with what it counted."""
        return [asdict(rule) | {"armed": rule.id in self._armed} for rule in self._rules.values()]

    def remove(self, rule_id: RuleId | None = None) -> None:
        """Disarm one rule, or all."""
        self._armed = {own: rule for own, rule in self._armed.items() if rule_id is not None and own != rule_id}
