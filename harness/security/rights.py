"""Rights in the words of a test: the ACL of `harrow.allow("alice", "WRITE", "orders")` (A5).

A name that ends with `*` is a prefix, and `*` alone is every name. Operations have Kafka's names.
What may fail: ConfigError, which names the operations of the resource.
"""

from __future__ import annotations

from collections.abc import Mapping

from harrow.cluster.authorizer import CLUSTER, SUPPORTED_OPERATIONS, Operation, ResourceType
from harrow.cluster.errors import ConfigError
from harrow.cluster.security.acls import WILDCARD, Acl, AclEntry, PatternType, Permission, ResourcePattern

from .choice import check_user

__all__ = ["acl_of"]

_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    **SUPPORTED_OPERATIONS,
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
}


def acl_of(user: str, operation: str, *, topic: str | None, group: str | None, transactional_id: str | None) -> Acl:
    """Return the ACL that allows a user one operation; without a name: on the cluster itself."""
    names = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transactional_id,
    }
    given = [(kind, name) for kind, name in names.items() if name is not None]
    if len(given) > 1:
        raise ConfigError(f"allow({user!r}, {operation!r}): give one of topic, group and transactional_id")
    kind, name = given[0] if given else CLUSTER
    known = (*_OPERATIONS[kind], Operation.ALL)
    if operation not in [row.name for row in known]:
        what = kind.name.lower().replace("_", " ")
        raise ConfigError(
            f"allow({user!r}, {operation!r}): expected an operation of a {what}, one of "
            f"{', '.join(row.name for row in known)}"
        )
    is_prefix = name.endswith(WILDCARD) and name != WILDCARD
    pattern = ResourcePattern(
        kind,
        name.removesuffix(WILDCARD) if is_prefix else name,
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
    )
    return Acl(pattern, AclEntry(f"User:{check_user(user)}", WILDCARD, Operation[operation], Permission.ALLOW))
