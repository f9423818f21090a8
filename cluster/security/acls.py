"""ACLs as values: who may or may not do what to which resources, and the filters that choose ACLs.

Owns: `PatternType`, `Permission`, `ResourcePattern`, `AclEntry`, `Acl`, `AclFilter`, their rules, and Kafka's names of
resource types, operations and permissions. A principal is a text as `User:alice`; `User:*` and the host `*` are
everyone and everywhere; the literal name `*` is every resource of its type.

Source: Kafka's AclBinding, AclBindingFilter, ResourcePatternFilter, AclControlManager.validateNewAcl.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import NamedTuple

from ..authorizer import CLUSTER, Operation, ResourceType
from ..errors import ErrorCode, KafkaError

__all__ = [
    "ANYONE",
    "WILDCARD",
    "Acl",
    "AclEntry",
    "AclFilter",
    "AddressRange",
    "PatternType",
    "Permission",
    "ResourcePattern",
    "check_acl",
    "kafka_name",
    "range_of",
]

WILDCARD = "*"
"""Any host; as the name of a literal pattern: any resource of the type."""
ANYONE = "User:*"


class PatternType(IntEnum):
    """Kafka's PatternType; an ACL has LITERAL or PREFIXED, a filter may have ANY or MATCH too."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """True when the pattern has the resource of its type with this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


class AclEntry(NamedTuple):
    """Who may, or may not, do what."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One ACL: Kafka's AclBinding."""

    pattern: ResourcePattern
    entry: AclEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Chooses ACLs; None and ANY choose everything."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def exact_pattern(self) -> ResourcePattern | None:
        """The only pattern that the filter can choose; None where there may be several."""
        several = self.pattern_type in (PatternType.ANY, PatternType.MATCH) or self.type is ResourceType.ANY
        return None if several or self.name is None else ResourcePattern(self.type, self.name, self.pattern_type)

    @property
    def exact_entry(self) -> AclEntry | None:
        """The only principal, host, operation and permission that the filter can choose; None for several."""
        if self.principal is None or self.host is None or self.operation is Operation.ANY:
            return None
        if self.permission is Permission.ANY:
            return None
        return AclEntry(self.principal, self.host, self.operation, self.permission)

    def matches(self, acl: Acl) -> bool:
        """True for an ACL that the filter chooses."""
        return self.matches_pattern(acl.pattern) and self.matches_entry(acl.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """True when the filter may choose ACLs of this pattern.

        MATCH with a name chooses the patterns that have a resource of this name, other types the patterns so named.
        """
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.matches(self.name) if self.pattern_type is PatternType.MATCH else self.name == pattern.name

    def matches_entry(self, entry: AclEntry) -> bool:
        """True when the filter chooses an ACL for what it says of principal, host, operation and permission."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


AddressRange = IPv4Network | IPv6Network


def check_acl(acl: Acl) -> None:
    """KafkaError(invalid_request) for an ACL that cannot be created."""
    pattern, entry = acl
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER.name:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
    if not pattern.name:
        raise _invalid("Invalid empty resource name")
    if pattern.type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {pattern.type.name}")
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern.pattern_type.name}")
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid(f"Invalid operation {entry.operation.name}")
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        raise _invalid(f"Invalid permissionType {entry.permission.name}")
    if ":" not in entry.principal:
        raise _invalid(
            f"Could not parse principal from `{entry.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if not entry.host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" in entry.host and range_of(entry.host) is None:
        raise _invalid(f"Invalid CIDR notation '{entry.host}': expected an address and a number of bits, as 10.0.0.0/8")


def range_of(host: str) -> AddressRange | None:
    """The addresses of an ACL such as `10.0.0.0/8` (CIDR); None for any other host."""
    _, slash, length = host.partition("/")
    if not slash or not (length.isascii() and length.isdigit()):
        return None
    try:
        return ip_network(host, strict=False)
    except ValueError:
        return None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def kafka_name(value: IntEnum) -> str:
    """Kafka's written name, for example `TransactionalId` for TRANSACTIONAL_ID."""
    return "".join(word.capitalize() for word in value.name.split("_"))
