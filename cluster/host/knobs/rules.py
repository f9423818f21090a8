"""The control operations of a host's rules, the same three for every kind of rule:

    rules.add      kind, and the fields of that kind     arms a rule; its id
    rules.list     kind (without: of all kinds)          every rule of this incarnation: what it saw, and what it did
    rules.remove   kind, id (without: all of the kind)   disarms

    kind         its fields                                                              in
    -----------  ----------------------------------------------------------------------  ---------------------
    request      action, api_key, nth, count, probability, seed, client, where, error,   `request_faults.py`
                 delay_ms
    response     action, api_key, nth, count, probability, seed, client, where, error    `response_faults.py`
    failpoint    name, action, nth, delay_ms; its id is its name                         `failpoints.py`
    disk         operation, path, error, nth, count, delay_ms                            `disk_faults.py`
    access       event, user, refuse, operations, type, name                             `access_rules.py`
    clock        kind of the error as `error`, by_ms, rate, period_ms                    `clock_faults.py`

Removing a rule that is not there does nothing. What may fail: ConfigError for a kind that the host does not have, and
for fields that its kind refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...errors import ConfigError

RuleId = int | str
Operation = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class RulesOfKind(Protocol):
    """The rules of one kind on one host."""

    def add(self, fields: Mapping[str, Any]) -> RuleId:
        """Arm a rule; return its id. ConfigError for fields that cannot be used."""
        ...

    def report(self) -> list[dict[str, Any]]:
        """Return a row for each rule of this incarnation: `id`, `armed`, `fired`, and what the kind knows."""
        ...

    def remove(self, rule_id: RuleId | None) -> None:
        """Disarm the rule with this id, or all."""
        ...


def rule_operations(kinds: Mapping[str, RulesOfKind]) -> dict[str, Operation]:
    """Return the control operations of a host that has these kinds of rules."""

    def of_kind(fields: Mapping[str, Any]) -> RulesOfKind:
        kind = str(fields["kind"])
        if kind not in kinds:
            raise ConfigError(f"rules of the kind {kind!r}: there are {', '.join(sorted(kinds))}")
        return kinds[kind]

    def add(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"id": of_kind(fields).add(fields)}

    def remove(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        of_kind(fields).remove(fields.get("id"))
        return {}

    def listed(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if "kind" in fields:
            return {"rules": of_kind(fields).report()}
        return {"rules": [{"rule": kind, **row} for kind, rules in kinds.items() for row in rules.report()]}

    return {"rules.add": add, "rules.list": listed, "rules.remove": remove}
