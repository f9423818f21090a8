"""Kafka's StandardAuthorizer: decides by ACLs that are in memory.

Owns: `StandardAuthorizer`, the ACLs by resource pattern, and the decision:

1. Super users, and brokers of the cluster that a PLAINTEXT inter-broker listener names, may do everything.
2. A matching ACL that denies wins over all that allow; otherwise one that allows is enough.
3. Where no ACL has the resource, of whatever principal, `allow.everyone.if.no.acl.found` decides; else it is denied.

An ACL that allows READ, WRITE, DELETE or ALTER allows DESCRIBE as well, and one that allows ALTER_CONFIGS allows
DESCRIBE_CONFIGS; one that denies, denies its own operation only. ALL is every operation.

A question costs the same whatever number of ACLs a resource has: ACLs are looked up by pattern, and in a pattern by
principal, host and operation. It takes one look-up for each length that prefixed patterns have.

Source: Kafka's StandardAuthorizerData; Authorizer.authorizeByResourceType (KIP-679).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

from ..authorizer import Operation, Principal, Resource, ResourceType
from ..config import BrokerConfig
from .acls import ANYONE, WILDCARD, Acl, AclEntry, AddressRange, PatternType, Permission, ResourcePattern, range_of

__all__ = ["ALLOWED_BY", "StandardAuthorizer", "authorizer_of"]

ALLOWED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operation → operations that allow it when they are allowed."""
_A_NAME = "hardcode"
"""Kafka's name of a resource by which `authorize_any` finds super users and clusters that allow everything."""

OnDenied = Callable[[str, str, str, str], None]
"""Takes user, operation, resource type and name of a denied question."""
Question = tuple[str, str, Operation]
"""Principal, host, operation."""


def _ignore(*_question: str) -> None:
    """Denied questions are not counted."""


class _Rules(NamedTuple):
    """The ACLs of one resource pattern."""

    entries: tuple[AclEntry, ...]
    allowed: frozenset[Question]
    denied: frozenset[Question]


class StandardAuthorizer:
    """Decides by the ACLs that `replace` gave it."""

    unrestricted = False

    def __init__(
        self,
        super_users: Collection[str] = (),
        *,
        allow_without_acl: bool = False,
        on_denied: OnDenied = _ignore,
    ) -> None:
        """`super_users`: principals as `User:admin`; `allow_without_acl`: the decision where no ACL has a resource."""
        self._on_denied = on_denied
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._rules: dict[ResourcePattern, _Rules] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}
        """Resource type → length of a prefixed pattern → how many patterns have it."""
        self._ranges: dict[str, AddressRange] = {}
        """The ranges of addresses that an ACL has named so far, by their text."""

    # ------------------------------------------------------------------ ACLs

    def acls(self) -> Iterator[Acl]:
        """Every ACL; those of one pattern follow each other."""
        for pattern, rules in self._rules.items():
            for entry in rules.entries:
                yield Acl(pattern, entry)

    def patterns(self) -> Collection[ResourcePattern]:
        """The patterns that have ACLs."""
        return self._rules.keys()

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        """The ACLs of a pattern."""
        rules = self._rules.get(pattern)
        return frozenset() if rules is None else frozenset(rules.entries)

    def replace(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Give a pattern these ACLs in place of those that it has."""
        kept = tuple(sorted(set(entries)))
        self._ranges.update((str(found), found) for row in kept if (found := range_of(row.host)) is not None)
        known = self._rules.pop(pattern, None)
        if kept:
            self._rules[pattern] = _Rules(kept, _questions(kept, Permission.ALLOW), _questions(kept, Permission.DENY))
        if pattern.pattern_type is PatternType.PREFIXED and bool(kept) is (known is None):
            lengths = self._prefix_lengths.setdefault(pattern.type, {})
            lengths[len(pattern.name)] = lengths.get(len(pattern.name), 0) + (1 if kept else -1)

    # -------------------------------------------------------------- decisions

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource) -> bool:
        """True when `principal` may do `operation` to `resource` from the IP address `host`."""
        if self._is_super_user(principal) or self._allows(str(principal), host, operation, resource):
            return True
        self._on_denied(principal.name, operation.name, resource.type.name, resource.name)
        return False

    def _allows(self, who: str, host: str, operation: Operation, resource: Resource) -> bool:
        hosts = self._hosts(host)
        allowing = _asked(who, hosts, (operation, Operation.ALL, *ALLOWED_BY.get(operation, ())))
        denying = _asked(who, hosts, (operation, Operation.ALL))
        found = allowed = False
        for rules in self._of(resource):
            found = True
            if not rules.denied.isdisjoint(denying):
                return False
            allowed = allowed or not rules.allowed.isdisjoint(allowing)
        return allowed if found else self._allow_without_acl

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """True when there is a resource of this type to which `principal` may do `operation`.

        As in Kafka, operations that imply `operation` do not count.
        """
        if self.authorize(principal, host, operation, Resource(kind, _A_NAME)):
            return True
        asked = _asked(str(principal), self._hosts(host), (operation, Operation.ALL))
        mine = {row: rules for row, rules in self._rules.items() if row.type is kind}
        denied = {row for row, rules in mine.items() if not rules.denied.isdisjoint(asked)}
        everything = ResourcePattern(kind, WILDCARD)
        if everything in denied:
            return False
        allowed = [row for row, rules in mine.items() if not rules.allowed.isdisjoint(asked)]
        return everything in allowed or any(not _is_dominated(row, denied) for row in allowed)

    def _hosts(self, host: str) -> tuple[str, ...]:
        """The hosts of ACLs that match an address."""
        if not self._ranges:
            return host, WILDCARD
        try:
            address = ip_address(host)
        except ValueError:
            return host, WILDCARD
        return host, WILDCARD, *(text for text, found in self._ranges.items() if address in found)

    def _is_super_user(self, principal: Principal) -> bool:
        return principal.is_broker or str(principal) in self._super_users

    def _of(self, resource: Resource) -> Iterator[_Rules]:
        """The ACLs of each pattern that has the resource."""
        kind, name = resource
        for literal in (name, WILDCARD):
            rules = self._rules.get(ResourcePattern(kind, literal))
            if rules is not None:
                yield rules
        for length, patterns in self._prefix_lengths.get(kind, {}).items():
            if patterns and length <= len(name):
                rules = self._rules.get(ResourcePattern(kind, name[:length], PatternType.PREFIXED))
                if rules is not None:
                    yield rules


@lru_cache(maxsize=4_096)
def _asked(principal: str, hosts: tuple[str, ...], operations: tuple[Operation, ...]) -> frozenset[Question]:
    """The ACLs that one of `operations` matches."""
    return frozenset(
        (who, where, operation) for who in (principal, ANYONE) for where in hosts for operation in operations
    )


def _questions(entries: Iterable[AclEntry], permission: Permission) -> frozenset[Question]:
    return frozenset(
        (row.principal, _address(row.host), row.operation) for row in entries if row.permission is permission
    )


def _address(host: str) -> str:
    """The IP address of an ACL as links write it, or its range: Java writes IPv6 without `::`."""
    found = range_of(host)
    if found is not None:
        return str(found)
    try:
        return str(ip_address(host))
    except ValueError:
        return host  # `*`, or a text that is no address and matches no link


def _is_dominated(pattern: ResourcePattern, denied: Collection[ResourcePattern]) -> bool:
    """True when a pattern that denies has every resource of `pattern`."""
    kind, name, pattern_type = pattern
    if pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    prefixes = (name[:length] for length in range(1, len(name) + 1))
    return any(ResourcePattern(kind, prefix, PatternType.PREFIXED) in denied for prefix in prefixes)


def authorizer_of(config: BrokerConfig, on_denied: OnDenied = _ignore) -> StandardAuthorizer | None:
    """The authorizer of a broker, without ACLs; None where `authorizer.class.name` is not set."""
    if not config.text("authorizer.class.name"):
        return None
    super_users = filter(None, (name.strip() for name in config.text("super.users").split(";")))
    allow_without_acl = config.flag("allow.everyone.if.no.acl.found")
    return StandardAuthorizer([*super_users], allow_without_acl=allow_without_acl, on_denied=on_denied)
