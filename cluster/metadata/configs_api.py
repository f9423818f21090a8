"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources for topics, groups and brokers.

Owns: the handlers of the four. The overrides of topics and groups and the dynamic settings of brokers are stored in
the registry; brokers apply changes by `config_changes.py`. Settings that need a restart are read-only. Each resource
has its own result.

Source: Apache Kafka's `ConfigHelper`, `ZkAdminManager.incrementalAlterConfigs` (KIP-339).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..authorizer import CLUSTER, Operation, Resource, ResourceType
from ..config import BY_NAME, BY_TOPIC_NAME, BrokerConfig, Setting, setting_of
from ..errors import ErrorCode, KafkaError, RegistryError
from ..topic_names import check_topic_name
from ..wire import messages
from ..wire.request import Request
from .cache import MetadataCache
from .config_entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    topic_entries,
)
from .config_store import checked_topic_config
from .java_text import text_of
from .registry_retries import error_for_client
from .topic_admin import TopicAdmin

__all__ = ["ConfigsApi"]

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_LISTED = (_BROKER_LOGGER, _BROKER, _TOPIC, _GROUP, _CLIENT_METRICS)
_NAMED = {_GROUP: "group", _CLIENT_METRICS: "client metrics"}
_CHANGED_FIRST = frozenset((_TOPIC, _GROUP, _CLIENT_METRICS))
"""Types whose operations are checked before the name of the resource, as Kafka's controller does."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

Change = Callable[[dict[str, str]], Mapping[str, str]]


class ConfigsApi:
    """Handlers that read and change settings."""

    def __init__(self, config: BrokerConfig, cache: MetadataCache, admin: TopicAdmin) -> None:
        self._config = config
        self._cache = cache
        self._admin = admin

    # --------------------------------------------------------------- reading

    async def describe_configs(self, request: Request) -> None:
        """Serve DescribeConfigs."""
        entity = request.decode()
        s = messages.response(request)
        results: list[Any] = []
        for row in entity.resources:  # as in Kafka, one of them refuses the whole request
            if row.resource_type not in _LISTED:
                raise _unsupported(row.resource_type)
        for row in entity.resources:
            fields = {"resource_type": row.resource_type, "resource_name": row.resource_name}
            try:
                request.require(Operation.DESCRIBE_CONFIGS, *_resource(row))
                entries = await self._entries(row.resource_type, row.resource_name)
                wanted = row.configuration_keys
                configs = tuple(_described(s, entry, entity) for entry in entries if not wanted or entry.name in wanted)
                fields |= {"error_code": ErrorCode.none, "error_message": "", "configs": configs}
            except (KafkaError, RegistryError) as error:
                refused = error_for_client(error)
                fields |= {"error_code": refused.code, "error_message": refused.message or None}
            results.append(s.DescribeConfigsResult(**fields))
        request.respond(s.DescribeConfigsResponse(results=tuple(results)))

    def list_config_resources(self, request: Request) -> None:
        """Serve ListConfigResources (KIP-1142); version 0 lists client metrics only, and there are none."""
        entity = request.decode()
        s = messages.response(request)
        wanted = {_CLIENT_METRICS} if s.version == 0 else {*entity.resource_types} or {*_LISTED}
        if not wanted <= {*_LISTED}:
            request.respond(s.root(error_code=ErrorCode.unsupported_version, config_resources=()))
            return
        brokers = [str(row.node_id) for row in self._cache.brokers()]
        names = {
            _BROKER_LOGGER: brokers,
            _BROKER: brokers,
            _TOPIC: sorted(self._cache.topic_names()),
            _GROUP: sorted(self._config.groups),
        }
        rows = tuple(
            s.ConfigResource(resource_name=name, resource_type=kind)
            for kind in _LISTED
            if kind in wanted
            for name in names.get(kind, ())
        )
        request.respond(s.root(error_code=ErrorCode.none, config_resources=rows))

    async def _entries(self, kind: int, name: str) -> list[ConfigEntry]:
        if kind == _TOPIC:
            self._check_topic(name)
            read = partial(self._admin.configs.topic_config, name)
            overrides = await self._admin.retries.until_reachable(read, self._config.number("request.timeout.ms"))
            return topic_entries(self._config, overrides)
        if kind == _BROKER:
            if not name:
                return default_broker_entries(self._config)
            self._check_broker(name)
            return broker_entries(self._config)
        if kind == _GROUP:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "Group name must not be empty")
            read = partial(self._admin.configs.group_config, name)
            found = await self._admin.retries.until_reachable(read, self._config.number("request.timeout.ms"))
            return group_entries(self._config, found)
        if kind == _CLIENT_METRICS:
            if not name:
                text = "Client metrics subscription name must not be empty"
                raise KafkaError(ErrorCode.invalid_request, text)
            return client_metrics_entries()
        if kind == _BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.invalid_request, "Broker id must not be empty")
            self._check_broker(name)
            return []  # no loggers whose levels could be changed
        raise _unsupported(kind)

    def _check_topic(self, name: str) -> None:
        check_topic_name(name)
        if self._cache.topic(name) is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"Topic '{name}' does not exist.")

    def _check_broker(self, name: str) -> None:
        if name != str(self._cache.node_id):
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Unexpected broker id, expected {self._cache.node_id} or empty string, but received {name}",
            )

    # -------------------------------------------------------------- changing

    async def alter_configs(self, request: Request) -> None:
        """Serve AlterConfigs: the given overrides replace all existing overrides."""
        await self._alter(request, _replacement)

    async def incremental_alter_configs(self, request: Request) -> None:
        """Serve IncrementalAlterConfigs: the given operations change the existing overrides."""
        await self._alter(request, self._increments)

    async def _alter(self, request: Request, change_of: Callable[[Any], Change]) -> None:
        entity = request.decode()
        s = messages.response(request)
        counts = Counter((row.resource_type, row.resource_name) for row in entity.resources)
        results: list[Any] = []
        for row in entity.resources:
            code, message = ErrorCode.none, None
            try:
                _check_once(counts[row.resource_type, row.resource_name])
                await self._alter_resource(request, row, change_of, dry=entity.validate_only)
            except (KafkaError, RegistryError) as error:
                refused = error_for_client(error)
                code, message = refused.code, refused.message
            results.append(
                s.AlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=row.resource_type,
                    resource_name=row.resource_name,
                )
            )
        request.respond(s.root(responses=tuple(results)))

    async def _alter_resource(
        self, request: Request, row: Any, change_of: Callable[[Any], Change], *, dry: bool
    ) -> None:
        name: str = row.resource_name
        left: Mapping[str, str] = {}
        names = Counter(item.name for item in row.configs)
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise KafkaError(ErrorCode.invalid_request, f"Error due to duplicate config keys : {','.join(twice)}")
        if row.resource_type == _BROKER:  # as in Kafka, brokers check this before the controller asks the authorizer
            self._check_resource(row.resource_type, name)
        request.require(Operation.ALTER_CONFIGS, *_resource(row))
        if row.resource_type in _CHANGED_FIRST:
            left = change_of(row)({})
        self._check_resource(row.resource_type, name)
        if row.resource_type == _TOPIC:
            if self._cache.topic(name) is None:  # as in Kafka, the settings are checked first
                checked_topic_config(change_of(row)({}), self._config)
            self._check_topic(name)
            await self._admin.configs.alter_config(name, change_of(row), dry=dry)
        elif row.resource_type == _GROUP:
            await self._admin.configs.alter_group_config(name, change_of(row), dry=dry)
        elif row.resource_type == _CLIENT_METRICS:
            if left:
                text = f"Settings of client metrics cannot be stored: {', '.join(sorted(left))}"
                raise KafkaError(ErrorCode.invalid_request, text)
        else:
            await self._admin.configs.alter_broker_config(name, change_of(row), dry=dry)

    def _check_resource(self, kind: int, name: str) -> None:
        if kind == _TOPIC:
            if not name:
                text = "Default topic resources are not allowed."
                raise KafkaError(ErrorCode.invalid_request, text)
            check_topic_name(name)
        elif kind in _NAMED:
            if not name:
                text = f"Default {_NAMED[kind]} resources are not allowed."
                raise KafkaError(ErrorCode.invalid_request, text)
        elif kind != _BROKER:
            raise _unsupported(kind)
        elif name:
            self._check_broker(name)

    def _increments(self, row: Any) -> Change:
        def change(before: dict[str, str]) -> Mapping[str, str]:
            after = dict(before)
            for item in row.configs:
                self._apply(after, item, row.resource_type)
            return after

        return change

    def _apply(self, overrides: dict[str, str], item: Any, kind: int) -> None:
        name, operation, value = item.name, item.config_operation, item.value
        if operation == _DELETE:
            overrides.pop(name, None)
            return
        if value is None:
            raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {name}")
        if operation == _SET:
            overrides[name] = value
            return
        if operation not in (_APPEND, _SUBTRACT):
            raise KafkaError(ErrorCode.invalid_request, f"Unknown operation {operation} for {name}")
        row = BY_TOPIC_NAME.get(name) if kind == _TOPIC else setting_of(name)
        if row is None or row.kind != "list" or kind == _GROUP:
            word = "APPEND" if operation == _APPEND else "SUBTRACT"
            raise KafkaError(
                ErrorCode.invalid_config,
                f"Can't {word} to key {name} because its type is not LIST; set the whole value",
            )
        found = overrides.get(name)
        present = [part for part in (self._static(row) if found is None else found).split(",") if part]
        for part in _java_split(value):
            if operation == _APPEND and part not in present:
                present.append(part)
            elif operation == _SUBTRACT and part in present:
                present.remove(part)
        overrides[name] = ",".join(present)

    def _static(self, row: Setting) -> str:
        """The value at the start of the broker: what an element is appended to while nothing else is set."""
        known = row.name in BY_NAME
        return text_of(self._config.overrides().get(row.name, row.default) if known else row.default)


def _resource(row: Any) -> Resource:
    """What a client needs a permission for, to describe or to change the settings of a resource."""
    if row.resource_type == _TOPIC:
        return Resource(ResourceType.TOPIC, row.resource_name)
    return Resource(ResourceType.GROUP, row.resource_name) if row.resource_type == _GROUP else CLUSTER


def _java_split(value: str) -> list[str]:
    """`String.split(",")`: without the empty elements at the end, except that an empty text has one element."""
    if "," not in value:
        return [value]
    parts = value.split(",")
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _unsupported(kind: int) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, f"Unsupported resource type: {kind}")


def _check_once(count: int) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.invalid_request, "Each resource must appear at most once")


def _replacement(row: Any) -> Change:
    nulls = sorted(item.name for item in row.configs if item.value is None)
    if nulls:
        raise KafkaError(ErrorCode.invalid_request, f"Null value not supported for : {', '.join(nulls)}")
    given = {item.name: item.value for item in row.configs}
    return lambda _before: given


def _described(s: messages.Schema, entry: ConfigEntry, entity: Any) -> Any:
    synonyms: tuple[Any, ...] = ()
    if entity.include_synonyms:
        synonyms = tuple(
            s.DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in entry.synonyms
        )
    return s.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if getattr(entity, "include_documentation", False) else None,
    )
