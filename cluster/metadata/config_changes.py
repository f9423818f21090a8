"""Settings that change while a broker runs: what `/config` says takes effect here without a restart.

Owns: `ConfigChanges`: the watch on `/config/changes`, the reading of what changed, and its application: a topic's
overrides to its logs (`Log.reconfigure`), the broker's dynamic settings to `BrokerConfig`, of which every topic's
settings inherit (KIP-226).

Invariants:

* One worker reads and applies, always from the registry's present state, never from the note: applied last is
  what was written last.
* The watch is set before anything is read, at each session anew; a note that was removed before it was seen
  makes everything be read again.
* A log that is made while its topic's settings change gets the new ones: the topic is read again when its
  replica has been given its role.

May fail: nothing that ends it. Settings that do not fit are logged and leave what holds; a registry out of reach
is waited for. Source: Kafka's ZkConfigManager, DynamicBrokerConfig, ZkNodeChangeNotificationListener.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..config import BY_NAME, BrokerConfig, TopicConfig, Value
from ..errors import ConfigError, RegistryError
from ..host.seam import Host, Promise
from ..ids import NodeId, TopicPartition
from ..registry import Delete, NodeError, RegistryClient
from ..registry.operations import Event
from ..registry.paths import CONFIG_CHANGES, entity_config_path
from .config_entries import is_dynamic

__all__ = ["DEFAULT_BROKER", "ConfigChanges"]

DEFAULT_BROKER = "<default>"
"""The entity whose settings hold for all brokers."""
NOTES_MOST = 1_000
"""More notes than these are cut to the newest half by whoever sees them."""
_RETRY_MS = 200


class Log(Protocol):
    """What it asks of a log."""

    topic_partition: TopicPartition
    config: TopicConfig

    def reconfigure(self, config: TopicConfig, /) -> None:
        """Take the topic's settings; they hold from the next append on."""
        ...


class Hosted(Protocol):
    """What it needs to know of a replica."""

    topic_partition: TopicPartition


class ConfigChanges:
    """Applies changed settings to one broker. `logs()` gives its logs."""

    def __init__(
        self,
        host: Host,
        registry: RegistryClient,
        node_id: NodeId,
        config: BrokerConfig,
        logs: Callable[[], Iterable[Log]],
    ) -> None:
        self._host = host
        self._registry = registry
        self._brokers = (DEFAULT_BROKER, str(node_id))
        self._config = config
        self._logs = logs
        self.on_change: list[Callable[[], None]] = []
        """Called after settings took effect."""
        self._due: dict[str, None] = {}
        self._changed_topics: set[str] = set()
        self._newest: str | None = None  # of the notes that were seen; None before the first look
        self._watching = False
        self._wake: Promise[None] | None = None
        self._begun: Promise[None] = host.tasks.promise()
        self._running = False

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Watch, and apply everything that is set; returns when it holds, however long the registry is away."""
        if not self._running:
            self._running = True
            self._host.tasks.spawn(self._work(), name="config-changes")
        self._look()
        await self._begun

    def session_expired(self) -> None:
        """The watch is gone with the session: look at everything again."""
        self._newest = None
        self._look()

    def hosted(self, *roles: Iterable[Hosted]) -> None:
        """Replicas got their roles: those whose topic's settings changed lately may have older ones."""
        for partitions in roles:
            for partition in partitions:
                if partition.topic_partition.topic in self._changed_topics:
                    self._read_soon(f"topics/{partition.topic_partition.topic}")

    # ---------------------------------------------------------------- worker

    def _look(self, _event: Event | None = None) -> None:
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
                    await self._read_notes()
                await self._read_due()
                if not self._begun.done():
                    self._begun.set_result(None)
            except RegistryError as error:
                self._watching = False
                self._host.trace.log("info", f"settings cannot be read yet: {error}")
                await self._host.tasks.sleep(_RETRY_MS)

    async def _read_notes(self) -> None:
        self._watching = (
            True  # before it is: an event that comes during the call must not be forgotten
        )
        seen = self._newest
        if seen is None:
            await self._registry.ensure(CONFIG_CHANGES)
        names = await self._registry.children(CONFIG_CHANGES, self._look)
        if seen is None or (seen and seen not in names):
            self._everything()
        if seen is not None:
            await self._read_new([name for name in names if name > seen])
        self._newest = names[-1] if names else seen or ""
        if len(names) > NOTES_MOST:
            await self._purge(names[: NOTES_MOST // 2])

    def _everything(self) -> None:
        """At the start, in a new session, and when notes are gone that were not seen."""
        self._due.update((f"brokers/{name}", None) for name in self._brokers)
        self._due.update((f"topics/{log.topic_partition.topic}", None) for log in self._logs())

    async def _read_new(self, names: list[str]) -> None:
        for found in await self._registry.get_many([f"{CONFIG_CHANGES}/{name}" for name in names]):
            if found is None:
                self._everything()
                continue
            entity = _entity_of(found[0])
            kind, _, name = entity.partition("/")
            if kind == "topics":
                self._changed_topics.add(name)
            if kind == "topics" or (kind == "brokers" and name in self._brokers):
                self._due[entity] = None

    async def _purge(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._registry.multi([Delete(f"{CONFIG_CHANGES}/{name}")])
            except NodeError:
                continue  # another broker was faster

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
            else:
                self._apply_broker(name, raw)
        for call in self.on_change:
            call()

    # ----------------------------------------------------------- application

    def _apply_topic(self, topic: str, raw: Mapping[str, str]) -> None:
        try:
            config = self._config.topic(raw)
        except ConfigError as error:
            self._host.trace.log("warning", f"settings of topic {topic} do not fit: {error}")
            return
        for log in self._logs():
            if log.topic_partition.topic == topic:
                log.reconfigure(config)
        self._host.trace.log("info", f"settings of topic {topic}: {dict(raw)}")

    def _apply_broker(self, name: str, raw: Mapping[str, str]) -> None:
        values: dict[str, Value] = {}
        for setting, text in raw.items():
            try:
                if setting in BY_NAME and is_dynamic(BY_NAME[setting]):
                    values[setting] = BY_NAME[setting].parse(text)
            except ConfigError as error:
                self._host.trace.log("warning", f"settings of broker {name} do not fit: {error}")
        layer = "dynamic_default" if name == DEFAULT_BROKER else "dynamic"
        if getattr(self._config, layer) == values:
            return
        setattr(self._config, layer, values)
        for log in self._logs():
            log.reconfigure(log.config)  # it inherits what its topic does not override
        self._host.trace.log("info", f"settings of broker {name}: {dict(raw)}")


def _entity_of(note: str) -> str:
    try:
        return str(json.loads(note)["entity_path"])
    except (ValueError, KeyError, TypeError):
        return ""  # no note of ours


def _settings_of(data: str) -> dict[str, str]:
    return dict(json.loads(data)["config"]) if data else {}
