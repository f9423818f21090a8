"""DescribeAcls, CreateAcls and DeleteAcls.

Owns: the handlers of the three; dispatch asks for DESCRIBE or ALTER on the cluster (`CLUSTER_OPERATIONS`). Each ACL of
a request has its own result. Without an authorizer the result is SECURITY_DISABLED.

As in Kafka with KRaft, the broker that was asked decides by the new ACLs when it responds, and others a moment later;
unlike there, the ACLs of a request are written one pattern after the other, not at once.
May fail: WireError for a type, operation or permission that is UNKNOWN: Kafka closes the connection too.
Source: Kafka's AclApis, AclControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError, RegistryError, WireError
from ..metadata.registry_retries import error_for_client
from ..security.acls import Acl, AclEntry, AclFilter, PatternType, Permission, ResourcePattern, check_acl
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request
from .acl_store import AclStore

__all__ = ["AclApi"]

VERSIONS = (1, 3)


class AclApi:
    """Handlers of the requests about ACLs; without a `store` there is no authorizer."""

    def __init__(self, store: AclStore | None) -> None:
        self._store = store

    def handlers(self) -> Iterable[ApiRow]:
        """The API table's entries."""
        return (
            ApiRow(ApiKey.DESCRIBE_ACLS, *VERSIONS, self.describe),
            ApiRow(ApiKey.CREATE_ACLS, *VERSIONS, self.create),
            ApiRow(ApiKey.DELETE_ACLS, *VERSIONS, self.delete),
        )

    def _served(self, missing: str = "No Authorizer is configured.") -> AclStore:
        if self._store is None:
            raise KafkaError(ErrorCode.security_disabled, missing)
        return self._store

    # ------------------------------------------------------------ DescribeAcls

    def describe(self, request: Request) -> None:
        """Serve DescribeAcls."""
        wanted = _filter_of(request.decode())
        s = messages.response(request)
        found: dict[ResourcePattern, list[AclEntry]] = {}
        for acl in self._served("No Authorizer is configured on the broker").chosen(wanted):
            found.setdefault(acl.pattern, []).append(acl.entry)
        resources = tuple(
            s.DescribeAclsResource(
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
                acls=tuple(
                    s.AclDescription(
                        principal=row.principal,
                        host=row.host,
                        operation=row.operation,
                        permission_type=row.permission,
                    )
                    for row in entries
                ),
            )
            for pattern, entries in found.items()
        )
        request.respond(s.DescribeAclsResponse(error_code=ErrorCode.none, resources=resources))

    # -------------------------------------------------------------- CreateAcls

    async def create(self, request: Request) -> None:
        """Serve CreateAcls."""
        acls = [_acl_of(row) for row in request.decode().creations]
        store = self._served()
        errors: dict[Acl, KafkaError] = {}
        valid: dict[ResourcePattern, list[AclEntry]] = {}
        for acl in acls:
            try:
                check_acl(acl)
                valid.setdefault(acl.pattern, []).append(acl.entry)
            except KafkaError as error:
                errors[acl] = error
        for pattern, entries in valid.items():
            try:
                await store.add(pattern, entries)
            except (KafkaError, RegistryError) as error:
                errors.update((Acl(pattern, entry), error_for_client(error)) for entry in entries)
        s = messages.response(request)
        # as in Kafka, an ACL that was created has a message, an empty one
        results = tuple(s.AclCreationResult(**{"error_message": ""} | _result(errors.get(acl))) for acl in acls)
        request.respond(s.CreateAclsResponse(results=results))

    # -------------------------------------------------------------- DeleteAcls

    async def delete(self, request: Request) -> None:
        """Serve DeleteAcls."""
        filters = [_filter_of(row) for row in request.decode().filters]
        store = self._served()
        errors = [_problem(row) for row in filters]
        removed: Sequence[Sequence[Acl]] = [()] * len(filters)
        try:
            removed = await store.remove(filters)
        except (KafkaError, RegistryError) as error:
            errors = [problem or error_for_client(error) for problem in errors]
        s = messages.response(request)
        results = tuple(
            s.DeleteAclsFilterResult(
                **_result(error),
                matching_acls=tuple(
                    s.DeleteAclsMatchingAcl(
                        error_code=ErrorCode.none,
                        error_message=None,
                        resource_type=pattern.type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for pattern, entry in acls
                ),
            )
            for error, acls in zip(errors, removed, strict=True)
        )
        request.respond(s.DeleteAclsResponse(filter_results=results))


def _result(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.none}
    return {"error_code": error.code, "error_message": error.message}


def _filter_of(row: Any) -> AclFilter:
    return AclFilter(
        type=_known(ResourceType, row.resource_type_filter),
        name=row.resource_name_filter,
        pattern_type=_known(PatternType, row.pattern_type_filter),
        principal=row.principal_filter,
        host=row.host_filter,
        operation=_known(Operation, row.operation),
        permission=_known(Permission, row.permission_type),
    )


def _acl_of(row: Any) -> Acl:
    pattern = ResourcePattern(
        _known(ResourceType, row.resource_type), row.resource_name, _known(PatternType, row.resource_pattern_type)
    )
    operation, permission = _known(Operation, row.operation), _known(Permission, row.permission_type)
    return Acl(pattern, AclEntry(row.principal, row.host, operation, permission))


def _known(values: Any, number: int) -> Any:
    """The value with this number; UNKNOWN for a number that Kafka does not have. WireError for that of UNKNOWN."""
    if not number:
        raise WireError(f"{values.__name__} is UNKNOWN")
    return values(number) if number in set(values) else values.UNKNOWN


def _problem(wanted: AclFilter) -> KafkaError | None:
    """Why ACLs cannot be deleted by a filter; such a filter chooses none."""
    if wanted.type is ResourceType.UNKNOWN or wanted.pattern_type is PatternType.UNKNOWN:
        return KafkaError(ErrorCode.invalid_request, "Unknown patternFilter.")
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return KafkaError(ErrorCode.invalid_request, "Unknown entryFilter.")
    return None
