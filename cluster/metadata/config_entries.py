"""Settings as DescribeConfigs reports them: the value, its source, and what it overrides.

Owns: `ConfigEntry`, which is made of a row of `config.SETTINGS`, for topics, for brokers and for groups.
Source: Apache Kafka's `ConfigHelper`; sources and types are the numbers of KIP-226 and KIP-569.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from ..config import (
    GROUP_SETTINGS,
    INT_MAX,
    LONG_MAX,
    SETTINGS,
    THROTTLE_RATES,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    Value,
)

__all__ = [
    "LIST_SETTINGS",
    "ConfigEntry",
    "ConfigSource",
    "broker_entries",
    "default_broker_entries",
    "group_entries",
    "is_dynamic",
    "topic_entries",
]

LIST_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "log.cleanup.policy",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings that are lists: only these can be appended to and subtracted from."""


COARSE_DEFAULTS = {
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", str(LONG_MAX)),
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.roll.ms": ("log.roll.hours", "168"),
}
"""Settings without a default of their own in Kafka: a broker's synonym is the coarser one, a topic has none."""


class ConfigSource(IntEnum):
    """The source of a value."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a value."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of one resource; `synonyms` (name, value, source) begins with the effective value, or is empty."""

    name: str
    value: str
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[tuple[str, str, ConfigSource], ...]


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every topic-level setting of a topic with these overrides on this broker."""
    return [
        _entry(row.topic, row, config, overrides.get(row.topic), read_only=False)
        for row in (*SETTINGS, *TOPIC_SETTINGS)
        if row.topic
    ]


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group with these overrides."""
    entries: list[ConfigEntry] = []
    for name, row in GROUP_SETTINGS.items():
        found = overrides.get(name)
        source = ConfigSource.DEFAULT if found is None else ConfigSource.GROUP
        value = str(config.number(f"group.{name}")) if found is None else found
        entry = ConfigEntry(
            name=name, value=value, source=source, read_only=False, type=_type(row), doc=row.doc,
            synonyms=((name, value, source),),
        )  # fmt: skip
        entries.append(entry)
    return entries


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every setting of this broker; throttle rates only where they are set."""
    rates = [
        row
        for row in THROTTLE_RATES
        if row.name in config.dynamic or row.name in config.dynamic_default
    ]
    return [
        _entry(row.name, row, config, None, read_only=not is_dynamic(row))
        for row in (*SETTINGS, *rates)
    ]


def default_broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic settings of all brokers."""
    entries = {entry.name: entry for entry in broker_entries(config)}
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        replace(
            entries[name],
            value=_text(value),
            source=source,
            synonyms=((name, _text(value), source),),
        )
        for name, value in sorted(config.dynamic_default.items())
    ]


def is_dynamic(row: Setting) -> bool:
    """True for a setting that a running broker can change.

    Those that topics inherit (Kafka's DynamicLogConfig), and throttle rates (DynamicReplicationConfig).
    """
    return bool(row.topic) or row in THROTTLE_RATES


def _entry(
    name: str, row: Setting, config: BrokerConfig, override: str | None, *, read_only: bool
) -> ConfigEntry:
    static = config.overrides().get(row.name)
    layers = (
        (config.dynamic.get(row.name), ConfigSource.DYNAMIC_BROKER),
        (config.dynamic_default.get(row.name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (static, ConfigSource.STATIC_BROKER),
    )
    synonyms: list[tuple[str, str, ConfigSource]] = []
    if override is not None:
        synonyms.append((name, override, ConfigSource.DYNAMIC_TOPIC))
    synonyms += [(row.name, _text(value), source) for value, source in layers if value is not None]
    value, source = synonyms[0][1:] if synonyms else (_text(row.default), ConfigSource.DEFAULT)
    synonyms += _default_synonyms(name, row)
    return ConfigEntry(
        name=name,
        value=value,
        source=source,
        read_only=read_only,
        type=_type(row),
        doc=row.doc,
        synonyms=tuple(synonyms),
    )


def _default_synonyms(name: str, row: Setting) -> list[tuple[str, str, ConfigSource]]:
    if row in TOPIC_SETTINGS or row in THROTTLE_RATES:
        return []
    if row.name not in COARSE_DEFAULTS:
        return [(row.name, _text(row.default), ConfigSource.DEFAULT)]
    return [] if name == row.topic else [(*COARSE_DEFAULTS[row.name], ConfigSource.DEFAULT)]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(row: Setting) -> ConfigType:
    if isinstance(row.default, bool):
        return ConfigType.BOOLEAN
    if isinstance(row.default, int):
        fits = row.high is not None and row.high <= INT_MAX
        return ConfigType.INT if fits else ConfigType.LONG
    if isinstance(row.default, float):
        return ConfigType.DOUBLE
    return ConfigType.LIST if row.name in LIST_SETTINGS else ConfigType.STRING
