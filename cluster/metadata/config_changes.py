"""Settings that change while a broker runs: changes of `/config` take effect without a restart (KIP-226).

Owns: `ConfigChanges`: it watches `/config/changes`, reads the changed settings and applies them: the overrides of a
topic to its logs (`Log.reconfigure`), the dynamic settings of the broker to `BrokerConfig`, from which the settings
of every topic inherit, the settings of groups to `BrokerConfig.groups`, and those of users to `on_user`.

Invariants:

* One worker reads and applies, always the registry's current state and never the notification's content: the settings
  that were written last are applied last.
* The watch is set before anything is read, again in each session; when a notification was deleted before it was
  seen, everything is read again.
* A log that is created while its topic's settings change gets the new ones: the topic is read again when its
  replica has become leader or follower.

May fail: nothing that ends it. Invalid settings are logged and not applied; while the registry is unreachable the
worker waits. Source: Kafka's ZkConfigManager, DynamicBrokerConfig, ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..config import BrokerConfig, TopicConfig, Value, parse_group_settings, setting_of
from ..errors import ConfigError, RegistryError
from ..host.seam import Host, Promise
from ..ids import NodeId, TopicPartition
from ..registry import Delete, NodeError, RegistryClient
from ..registry.operations import Event
from ..registry.paths import CONFIG_CHANGES, GROUP_CONFIGS, USER_QUOTAS, entity_config_path
from .node_names import name_of_node

__all__ = ["DEFAULT_BROKER", "ConfigChanges"]

DEFAULT_BROKER = "<default>"
"""The entity whose settings hold for all brokers."""
NOTIFICATIONS_MOST = 1_000
"""A broker that sees more notifications deletes the older half."""
_RETRY_MS = 200


class ReconfigurableLog(Protocol):
    """A log, as configuration changes need it."""

    topic_partition: TopicPartition
    config: TopicConfig

    def reconfigure(self, config: TopicConfig, /) -> None:
        """Use the topic's settings from the next append on."""
        ...


class HostedReplica(Protocol):
    """A replica, as configuration changes need it."""

    topic_partition: TopicPartition


class ConfigChanges:
    """Applies changed settings to one broker. `logs()` returns its logs."""

    def __init__(
        self,
        host: Host,
        registry: RegistryClient,
        node_id: NodeId,
        config: BrokerConfig,
        logs: Callable[[], Iterable[ReconfigurableLog]],
    ) -> None:
        self._host = host
        self._registry = registry
        self._brokers = (DEFAULT_BROKER, str(node_id))
        self._config = config
        self._logs = logs
        self.on_change: list[Callable[[], None]] = []
        """Called after settings took effect."""
        self.on_user: list[Callable[[str, Mapping[str, str]], None]] = []
        """Called with the settings of a user: credentials and quotas."""
        self._due: dict[str, None] = {}
        self._changed_topics: set[str] = set()
        self._newest: str | None = None  # of the notifications that were read; None before the first read
        self._watching = False
        self._wake: Promise[None] | None = None
        self._begun: Promise[None] = host.tasks.promise()
        self._running = False

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Watch, and apply all settings; returns when they are applied, however long the registry is unreachable."""
        if not self._running:
            self._running = True
            self._host.tasks.spawn(self._work(), name="config-changes")
        self._read_again()
        await self._begun

    def session_expired(self) -> None:
        """The watch ended with the session: read everything again."""
        self._newest = None
        self._read_again()

    def hosted(self, *roles: Iterable[HostedReplica]) -> None:
        """Replicas became leaders or followers: their logs may have older settings if the topic's changed recently."""
        for partitions in roles:
            for partition in partitions:
                if partition.topic_partition.topic in self._changed_topics:
                    self._read_soon(f"topics/{partition.topic_partition.topic}")

    # ---------------------------------------------------------------- worker

    def _read_again(self, _event: Event | None = None) -> None:
        self._watching = False
        self._wake_up()

    def _read_soon(self, entity: str) -> None:
        self._due[entity] = None
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _work(self) -> None:
        while True:
            while self._watching and not self._due:
                self._wake = self._host.tasks.promise()
                await self._wake
            try:
                if not self._watching:
                    await self._read_notifications()
                await self._read_due()
                if not self._begun.done():
                    self._begun.set_result(None)
            except RegistryError as error:
                self._watching = False
                self._host.trace.log("info", f"settings cannot be read yet: {error}")
                await self._host.tasks.sleep(_RETRY_MS)

    async def _read_notifications(self) -> None:
        self._watching = True  # before the call: an event that arrives during it must not be lost
        seen = self._newest
        if seen is None:
            await self._registry.ensure(CONFIG_CHANGES)
        names = await self._registry.children(CONFIG_CHANGES, self._read_again)
        if seen is None or (seen and seen not in names):
            await self._everything()
        if seen is not None:
            await self._read_new([name for name in names if name > seen])
        self._newest = names[-1] if names else seen or ""
        if len(names) > NOTIFICATIONS_MOST:
            await self._purge(names[: NOTIFICATIONS_MOST // 2])

    async def _everything(self) -> None:
        """At the start, in a new session, and when notifications were deleted unread."""
        for kind, path in self._kinds().items():
            with contextlib.suppress(NodeError):  # nothing of the kind has settings
                self._due.update((f"{kind}/{name}", None) for name in await self._registry.children(path))
        self._due.update((f"brokers/{name}", None) for name in self._brokers)
        self._due.update((f"topics/{log.topic_partition.topic}", None) for log in self._logs())

    def _kinds(self) -> Mapping[str, str]:
        """The folders of the kinds of entities that are all read at the start; users only for who asks."""
        return {"groups": GROUP_CONFIGS} | ({"users": USER_QUOTAS} if self.on_user else {})

    async def _read_new(self, names: list[str]) -> None:
        for found in await self._registry.get_many([f"{CONFIG_CHANGES}/{name}" for name in names]):
            if found is None:
                await self._everything()
                continue
            entity = _entity_of(found[0])
            kind, _, name = entity.partition("/")
            if kind == "topics":
                self._changed_topics.add(name)
            if kind == "topics" or kind in self._kinds() or (kind == "brokers" and name in self._brokers):
                self._due[entity] = None

    async def _purge(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._registry.multi([Delete(f"{CONFIG_CHANGES}/{name}")])
            except NodeError:
                continue  # another broker deleted it

    async def _read_due(self) -> None:
        if not self._due:
            return
        entities = list(self._due)
        found = await self._registry.get_many([entity_config_path(entity) for entity in entities])
        self._due = {entity: None for entity in self._due if entity not in entities}
        for entity, answer in zip(entities, found, strict=True):
            raw = _settings_of(answer[0]) if answer is not None else {}
            kind, _, name = entity.partition("/")
            if kind == "topics":
                self._apply_topic(name, raw)
            elif kind == "groups":
                self._apply_group(name_of_node(name), raw)
            elif kind == "users":
                for call in self.on_user:
                    call(name_of_node(name), raw)
            else:
                self._apply_broker(name, raw)
        for done in self.on_change:
            done()

    # ----------------------------------------------------------- application

    def _apply_topic(self, topic: str, raw: Mapping[str, str]) -> None:
        try:
            config = self._config.topic(raw)
        except ConfigError as error:
            self._host.trace.log("warning", f"settings of topic {topic} are invalid and not applied: {error}")
            return
        for log in self._logs():
            if log.topic_partition.topic == topic:
                log.reconfigure(config)
        self._host.trace.log("info", f"settings of topic {topic}: {dict(raw)}")

    def _apply_group(self, group: str, raw: Mapping[str, str]) -> None:
        try:
            self._config.groups[group] = parse_group_settings(raw)
        except ConfigError as error:
            text = f"settings of group {group} are invalid and not applied: {error}"
            self._host.trace.log("warning", text)
            return
        self._host.trace.log("info", f"settings of group {group}: {dict(raw)}")

    def _apply_broker(self, name: str, raw: Mapping[str, str]) -> None:
        values: dict[str, Value] = {}
        for setting, text in raw.items():
            row = setting_of(setting)
            try:
                if row is not None and row.is_dynamic:
                    values[setting] = row.parse(text)
            except ConfigError as error:
                self._host.trace.log("warning", f"settings of broker {name} are invalid and not applied: {error}")
        layer = "dynamic_default" if name == DEFAULT_BROKER else "dynamic"
        setattr(self._config, f"{layer}_texts", dict(raw))
        if getattr(self._config, layer) == values:
            return
        setattr(self._config, layer, values)
        for log in self._logs():
            log.reconfigure(log.config)  # the log inherits settings that its topic does not override
        self._host.trace.log("info", f"settings of broker {name}: {dict(map(_shown, raw.items()))}")


def _shown(item: tuple[str, str]) -> tuple[str, str]:
    """A setting for the log; a password, and the value of an unknown name, is hidden."""
    row = setting_of(item[0])
    return item if row is not None and row.kind != "password" else (item[0], "[hidden]")


def _entity_of(notification: str) -> str:
    try:
        return str(json.loads(notification)["entity_path"])
    except (ValueError, KeyError, TypeError):
        return ""  # malformed


def _settings_of(data: str) -> dict[str, str]:
    return dict(json.loads(data)["config"]) if data else {}
