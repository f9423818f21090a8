"""Requests about users, ACLs and settings of brokers, sent to one broker (A5).

Owns: `alter_scram`, `alter_broker`, `describe_acls`, `create_acls`, `delete_acls`. Blocking; ClusterError when the
broker does not respond in time, or responds with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harrow.cluster.authorizer import Operation, ResourceType
from harrow.cluster.errors import ClusterError, ErrorCode
from harrow.cluster.listeners import Address
from harrow.cluster.security.acls import Acl, AclEntry, PatternType, Permission, ResourcePattern
from harrow.cluster.security.sasl.scram import ScramMechanism
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from .raw import ask

__all__ = ["alter_broker", "alter_scram", "create_acls", "creation_of", "delete_acls", "describe_acls", "filter_of"]

TIMEOUT_S = 2.0
ACL_VERSION, ALTER_VERSION = 3, 1
BROKER_RESOURCE, SET, DELETE = 4, 0, 1


def alter_scram(
    address: Address, user: str, salted: Mapping[ScramMechanism, bytes], salt: bytes, iterations: int
) -> None:
    """Give a user these salted passwords, one for each mechanism, by one request for each.

    One request may name a user once.
    """
    for mechanism, password in salted.items():
        row = {
            "name": user,
            "mechanism": mechanism.value,
            "iterations": iterations,
            "salt": salt,
            "salted_password": password,
        }
        response = _ask(address, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[row])
        _check(response.results, f"the password of {user}")


def alter_broker(address: Address, node: int, settings: Mapping[str, str | None]) -> None:
    """Change dynamic settings of a broker; None: the setting has the value of the broker's start again."""
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in settings.items()
    ]
    row = {"resource_type": BROKER_RESOURCE, "resource_name": str(node), "configs": configs}
    response = _ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, resources=[row])
    _check(response.responses, f"settings of broker {node}")


def describe_acls(address: Address, kind: ResourceType, name: str) -> list[Acl]:
    """The ACLs that a broker has for a resource: literal, prefixed and with a wildcard."""
    response = _ask(
        address,
        ApiKey.DESCRIBE_ACLS,
        ACL_VERSION,
        resource_type_filter=kind,
        resource_name_filter=name,
        pattern_type_filter=PatternType.MATCH,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    _check([response], "the ACLs")
    return [
        Acl(
            ResourcePattern(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)),
            AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
        )
        for row in response.resources
        for acl in row.acls
    ]


def create_acls(address: Address, acls: Sequence[Acl]) -> None:
    """Create ACLs; those that exist stay."""
    if not acls:
        return
    rows = map(creation_of, acls)
    _check(_ask(address, ApiKey.CREATE_ACLS, ACL_VERSION, creations=rows).results, "ACLs to create")


def delete_acls(address: Address, acls: Sequence[Acl]) -> None:
    """Delete just these ACLs; those that do not exist are no error."""
    if not acls:
        return
    rows = map(filter_of, acls)
    _check(_ask(address, ApiKey.DELETE_ACLS, ACL_VERSION, filters=rows).filter_results, "ACLs to delete")


def creation_of(acl: Acl) -> dict[str, Any]:
    """Return the fields of a row of CreateAcls."""
    pattern, entry = acl
    return {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "resource_pattern_type": pattern.pattern_type,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def filter_of(acl: Acl) -> dict[str, Any]:
    """Return the fields of a filter that chooses this ACL alone."""
    pattern, entry = acl
    return {
        "resource_type_filter": pattern.type,
        "resource_name_filter": pattern.name,
        "pattern_type_filter": pattern.pattern_type,
        "principal_filter": entry.principal,
        "host_filter": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _ask(address: Address, api_key: ApiKey, version: int, **fields: Any) -> Any:
    return ask(address, client_request(api_key, version, **fields), timeout_s=TIMEOUT_S)


def _check(rows: Iterable[Any], what: str) -> None:
    for row in rows:
        if row.error_code != ErrorCode.none:
            raise ClusterError(f"{what}: {ErrorCode(row.error_code).name} {row.error_message or ''}".rstrip())
