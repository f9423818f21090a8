"""Settings of topics and brokers in the registry: read, validated, replaced, announced (KIP-226).

Owns: the nodes `/config/topics/T`, `/config/groups/G`, `/config/users/U` and `/config/brokers/N`, and the notifications
in `/config/changes`, as their writer (JSON as Apache Kafka 3.9's in ZooKeeper). Brokers apply announced changes by
`config_changes.py`.

Invariants: a write is conditional on the version that was read; an announcement follows its write.
May fail: KafkaError for invalid settings, RegistryError when the registry is unreachable.

Source: Apache Kafka's `AdminZkClient.changeConfigs`, `ZkAdminManager`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial

from ..config import BrokerConfig, check_compaction_lags, validate_group_settings
from ..errors import ConfigError, ErrorCode, KafkaError
from ..registry import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
)
from ..registry.paths import CONFIG_CHANGE, config_path, entity_config_path
from .broker_settings import check_broker_settings
from .config_changes import DEFAULT_BROKER
from .listener_keys import check_listener_keys
from .node_names import node_of_name
from .registry_retries import RegistryRetries

__all__ = ["ConfigStore", "change_settings", "checked_topic_config", "config_json", "config_of_json"]


class ConfigStore:
    """Settings in the registry, from one broker's side."""

    def __init__(
        self, registry: RegistryClient, retries: RegistryRetries, config: BrokerConfig, read: Callable[[str], bytes]
    ) -> None:
        """`read` reads a file: keys of TLS are tried before they are written."""
        self._registry = registry
        self._retries = retries
        self._config = config
        self._read = read

    async def topic_config(self, name: str) -> dict[str, str]:
        """The overrides of a topic in the registry; empty when it has none."""
        try:
            data, _ = await self._registry.get(config_path(name))
        except NoNodeError:
            return {}
        return config_of_json(data)

    async def await_topic_config(self, name: str) -> dict[str, str]:
        """The same; waits while the registry is unreachable, as Kafka does. For requests that must not be dropped."""
        while True:
            try:
                return await self.topic_config(name)
            except (RegistryUnavailableError, SessionExpiredError):
                await self._registry.until_connected()  # raises when this broker stops

    async def alter_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, dry: bool = False
    ) -> None:
        """Replace the overrides of a topic by `change` of them; `change` runs again after a concurrent write.

        KafkaError(invalid_config) for invalid settings; with `dry` nothing is written.
        """
        await self._alter(f"topics/{name}", lambda before: checked_topic_config(change(before), self._config), dry=dry)

    async def group_config(self, name: str) -> dict[str, str]:
        """What the registry has for one group; empty when nothing was set."""
        try:
            data, _ = await self._registry.get(entity_config_path(f"groups/{node_of_name(name)}"))
        except NoNodeError:
            return {}
        return config_of_json(data)

    async def alter_group_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, dry: bool = False
    ) -> None:
        """Replace the settings of a group by `change` of them; KafkaError(invalid_config)."""

        def checked(before: dict[str, str]) -> dict[str, str]:
            after = dict(change(before))
            try:
                validate_group_settings(after, self._config)
            except ConfigError as error:
                raise KafkaError(ErrorCode.invalid_config, str(error)) from error
            return after

        await self._alter(f"groups/{node_of_name(name)}", checked, dry=dry)

    async def alter_user_config(self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]]) -> None:
        """Replace the settings of a user by `change` of them, which may raise KafkaError."""
        await self._alter(f"users/{node_of_name(name)}", lambda before: dict(change(before)), dry=False)

    async def alter_broker_config(
        self, name: str, change: Callable[[dict[str, str]], Mapping[str, str]], *, dry: bool = False
    ) -> None:
        """Replace the dynamic settings of a broker (no name: of all brokers) by `change` of them.

        KafkaError(invalid_request) for settings that need a restart and for invalid values.
        """

        def checked(before: dict[str, str]) -> dict[str, str]:
            after = dict(change(before))
            check_broker_settings(after, self._config, name)
            check_listener_keys(after, self._config, self._read)
            return after

        await self._alter(f"brokers/{name or DEFAULT_BROKER}", checked, dry=dry)

    async def _alter(self, entity: str, change: Callable[[dict[str, str]], dict[str, str]], *, dry: bool) -> None:
        path = entity_config_path(entity)

        def changed(before: dict[str, str]) -> dict[str, str] | None:
            after = change(before)
            return None if dry else after

        async def announce() -> None:
            notification = json.dumps({"version": 2, "entity_path": entity}, separators=(",", ":"))
            await self._registry.create(CONFIG_CHANGE, notification, sequential=True, make_parents=True)

        timeout_ms = self._config.number("request.timeout.ms")
        replace = partial(change_settings, self._registry, path, changed)
        await self._retries.until_reachable(replace, timeout_ms)
        if not dry:
            await self._retries.until_reachable(announce, timeout_ms)


async def change_settings(
    registry: RegistryClient, path: str, change: Callable[[dict[str, str]], dict[str, str] | None]
) -> None:
    """Replace the settings in a node by `change` of them; None: write nothing. It runs again after a concurrent write.

    A node that does not exist has no settings, and is created.
    """
    while True:
        try:
            data, stat = await registry.get(path)
        except NoNodeError:
            data, stat = config_json({}), None
        settings = change(config_of_json(data))
        if settings is None:
            return
        try:
            if stat is None:
                await registry.create(path, config_json(settings), make_parents=True)
            else:
                await registry.set(path, config_json(settings), stat.version)
            return
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # a concurrent write was first: change its result


def config_json(config: Mapping[str, str]) -> str:
    """The data of `/config/topics/T`."""
    return json.dumps({"version": 1, "config": dict(config)}, separators=(",", ":"))


def config_of_json(data: str) -> dict[str, str]:
    """The overrides in the data of `/config/topics/T`."""
    return dict(json.loads(data)["config"]) if data else {}


def checked_topic_config(config: Mapping[str, str | None], broker: BrokerConfig) -> dict[str, str]:
    """Overrides that are valid for a topic of this broker; KafkaError(invalid_config)."""
    nulls = sorted(name for name, value in config.items() if value is None)
    if nulls:
        raise KafkaError(ErrorCode.invalid_config, f"Null value not supported for topic configs: {', '.join(nulls)}")
    checked = {name: value for name, value in config.items() if value is not None}
    try:
        check_compaction_lags(broker.topic(checked))
    except ConfigError as error:
        raise KafkaError(ErrorCode.invalid_config, str(error)) from error
    return checked
