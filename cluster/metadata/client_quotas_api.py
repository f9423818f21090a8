"""DescribeClientQuotas and AlterClientQuotas: quotas are stored in the registry and described (KIP-546).

Owns: the handlers of both, and the quota nodes as their writer. No broker slows a client down because of a quota
(docs/compatibility.md). Each entity has its own result.

Invariant: a write is conditional on the version that was read, so that concurrent changes of one entity are all made.
May fail: KafkaError for an invalid request, RegistryError when the registry is unreachable.

Source: Kafka's `ClientQuotaControlManager`; the nodes are those of `ZkAdminManager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError, RegistryError
from ..registry import RegistryClient
from ..registry.paths import CLIENT_QUOTAS, IP_QUOTAS, USER_QUOTAS
from ..wire import messages
from ..wire.request import Request
from .client_quotas import (
    Component,
    Entity,
    change_order,
    checked_filter,
    checked_quotas,
    checked_values,
    entities_in_order,
    entity_of,
    entity_of_path,
    entity_order,
    matches,
    part_order,
    path_of,
    quota_order,
)
from .config_store import change_settings, config_of_json
from .registry_retries import RegistryRetries, error_for_client

__all__ = ["ClientQuotasApi"]


class ClientQuotasApi:
    """Handlers that read and change client quotas."""

    def __init__(self, registry: RegistryClient, retries: RegistryRetries, config: BrokerConfig) -> None:
        self._registry = registry
        self._retries = retries
        self._config = config

    async def describe(self, request: Request) -> None:
        """Serve DescribeClientQuotas."""
        entity = request.decode()
        s = messages.response(request)
        try:
            wanted = checked_filter(
                [Component(row.entity_type, row.match_type, row.match) for row in entity.components]
            )
            timeout_ms = self._config.number("request.timeout.ms")
            stored = await self._retries.until_reachable(self._stored, timeout_ms)
        except (KafkaError, RegistryError) as error:
            refused = error_for_client(error)
            request.respond(
                s.DescribeClientQuotasResponse(error_code=refused.code, error_message=refused.message, entries=None)
            )
            return
        entries = tuple(
            _described(s, found, quotas)
            for found, quotas in entities_in_order(stored).items()
            if quotas and matches(found, wanted, strict=entity.strict)
        )
        request.respond(s.DescribeClientQuotasResponse(error_code=ErrorCode.none, error_message="", entries=entries))

    async def _stored(self) -> Mapping[Entity, Mapping[str, float]]:
        found: dict[Entity, Mapping[str, float]] = {}
        for root in (USER_QUOTAS, CLIENT_QUOTAS, IP_QUOTAS):
            tree = await self._registry.read_tree(root)
            for path in sorted(tree):
                named = entity_of_path(path)
                if named is not None:
                    found[named] = checked_values(config_of_json(tree[path][0]))
        return found

    async def alter(self, request: Request) -> None:
        """Serve AlterClientQuotas: one result for each entity of the request."""
        entity = request.decode()
        s = messages.response(request)
        results: dict[Any, tuple[Entity, KafkaError | None]] = {}
        for row in entity.entries:
            # as in Kafka: the last name of a type that is named twice
            parts = part_order({part.entity_type: part.entity_name for part in row.entity})
            key = frozenset(parts)
            if key in results:  # as in Kafka, the first entry has taken effect
                results[key] = (
                    parts,
                    KafkaError(ErrorCode.invalid_request, f"Ignoring duplicate entity {dict(parts)}"),
                )
                continue
            error: KafkaError | None = None
            try:
                await self._alter(parts, row.ops, dry=entity.validate_only)
            except (KafkaError, RegistryError) as problem:
                error = error_for_client(problem)
            results[key] = parts, error
        found = dict(results.values())
        request.respond(
            s.AlterClientQuotasResponse(
                entries=tuple(
                    s.EntryData(
                        error_code=ErrorCode.none if error is None else error.code,
                        error_message=None if error is None else error.message,
                        entity=tuple(s.EntityData(entity_type=kind, entity_name=name) for kind, name in parts),
                    )
                    for parts, error in ((parts, found[parts]) for parts in entity_order(found))
                )
            )
        )

    async def _alter(self, parts: Any, operations: Any, *, dry: bool) -> None:
        entity = entity_of(parts)
        changes = checked_quotas(entity, [(row.key, None if row.remove else float(row.value)) for row in operations])
        if not dry:
            write = partial(change_settings, self._registry, path_of(entity), partial(_changed, changes))
            timeout_ms = self._config.number("request.timeout.ms")
            await self._retries.until_reachable(write, timeout_ms)


def _changed(changes: Mapping[str, float | None], before: Mapping[str, str]) -> dict[str, str] | None:
    """The settings with the changed quotas; None where there are none before and after."""
    settings = dict(before)
    for key in change_order(changes):
        if (value := changes[key]) is None:
            settings.pop(key, None)
        else:
            settings[key] = repr(value)
    return settings if settings or before else None


def _described(s: messages.Schema, entity: Entity, quotas: Mapping[str, float]) -> Any:
    return s.EntryData(
        entity=tuple(s.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(s.ValueData(key=key, value=quotas[key]) for key in quota_order(quotas)),
    )
