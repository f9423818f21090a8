"""Rules that act on requests or responses of an API, from the n-th matching one on: counting, arming, clearing.

Owns: `RequestRule`, and `RequestRules`, the armed rules of one kind on one host. `response_faults.py` and
`request_faults.py` say what a rule does. A rule

* counts the requests of its API from clients that match `client` and that `where` accepts, since it was armed. A
  pattern without a space is a client's name (`orders-*`), with one a peer (`broker 2`). It counts those too on which
  another rule acts: `nth=1` and `nth=2` act on the first and the second request, in whichever order they were armed.
* acts from the `nth` on, on each with `probability`, until it has acted `count` times. The draws are its own, from
  `seed`.
* acts alone: where two rules would act on one request, the one that was armed first does, and the other one acts on the
  next request that it counts.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Generic, TypeVar

from ...errors import ConfigError
from ..seam import FactsReader, Peer, RequestBody, RequestFacts
from .request_where import Where
from .rules import RuleId
from .seen_clients import SeenClients

COUNT_MOST = 1_000_000


@dataclass(slots=True, kw_only=True)
class RequestRule:
    """Act on `count` requests or responses of `api_key` of a peer that matches `client`, from the `nth` on."""

    id: int
    api_key: int
    nth: int = 1
    count: int = 1
    probability: float = 1.0
    seed: int = 0
    client: str = "*"
    where: Where | None = None
    seen: int = 0
    fired: int = 0
    """How often it acted."""
    draws: random.Random = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.nth < 1:
            raise ConfigError(f"nth={self.nth}: expected 1 or more")
        if not 1 <= self.count <= COUNT_MOST:
            raise ConfigError(f"count={self.count}: expected a number from 1 to {COUNT_MOST}")
        if not 0 < self.probability <= 1:
            raise ConfigError(f"probability={self.probability}: expected more than 0, at most 1")
        self.draws = random.Random(self.seed)  # noqa: S311 - repeatable, not secret

    def matches(self, peer: Peer, api_key: int) -> bool:
        """True when a request or response of this API counts, as far as `where` accepts it."""
        if api_key != self.api_key:
            return False
        if " " in self.client:
            return fnmatchcase(str(peer), self.client)
        return peer.kind == "client" and fnmatchcase(peer.name, self.client)

    def is_due(self) -> bool:
        """Count one; True when the rule acts on it, unless another one does."""
        self.seen += 1
        if self.seen < self.nth:
            return False
        return self.probability == 1 or self.draws.random() < self.probability

    def report(self) -> dict[str, Any]:
        """Return plain values, with what it counted."""
        values = {row.name: getattr(self, row.name) for row in fields(self) if row.name != "draws"}
        return values | {"where": None if self.where is None else self.where.to_json()}


def rule_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a rule in those of a control operation; ConfigError for a value that cannot be used."""
    where = given.get("where")
    return {
        "api_key": int(given["api_key"]),
        "nth": int(given.get("nth", 1)),
        "count": int(given.get("count", 1)),
        "probability": float(given.get("probability", 1.0)),
        "seed": int(given.get("seed", 0)),
        "client": str(given.get("client", "*")),
        "where": None if where is None else Where.parse(where),
    }


def action_in(given: Mapping[str, Any], actions: Collection[str], what: str) -> str:
    """Return the action in those of a control operation; ConfigError for one that there is not for `what`."""
    action = str(given["action"])
    if action not in actions:
        raise ConfigError(f"action={action!r} of a {what}: expected one of {', '.join(actions)}")
    return action


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
        assert rule.id not in self._rules, f"a second rule with the id {rule.id}"
        self._rules[rule.id] = rule
        self._seen[rule.id] = SeenClients(rule.api_key)
        self._armed.append(rule)

    def remove(self, rule_id: RuleId | None = None) -> None:
        """Disarm one rule, or all."""
        self._armed = [rule for rule in self._armed if rule_id is not None and rule.id != rule_id]

    def fire(self, peer: Peer, request: RequestBody, reader: FactsReader) -> RuleT | None:
        """Count one request or response; return the rule that acts on it. Without rules: one test."""
        if not self._armed:
            return None
        facts: RequestFacts | None = None
        due: RuleT | None = None
        for rule in self._armed:
            self._seen[rule.id].note(peer, request.api_key)
            if not rule.matches(peer, request.api_key):
                continue
            if rule.where is not None:
                facts = reader.facts_of(request) if facts is None else facts
                if not rule.where.accepts(facts):
                    continue
            if rule.is_due() and due is None:
                due = rule
        if due is not None:
            assert due.fired < due.count, f"a rule that acts {due.count} times has acted {due.fired} times: {due}"
            due.fired += 1
            if due.fired == due.count:
                self._armed.remove(due)
        return due

    def report(self) -> list[dict[str, Any]]:
        """Return every rule as plain values, with what it counted."""
        return [
            rule.report() | {"armed": rule in self._armed} | self._seen[rule.id].to_json()
            for rule in self._rules.values()
        ]
