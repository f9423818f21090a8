"""Settings as DescribeConfigs tells them: value, where it comes from, what it overrides.

Owns: `ConfigEntry` and how one is made of a row of `config.SETTINGS`, for topics and for brokers.
Source: Apache Kafka's `ConfigHelper`; sources and types are the numbers of KIP-226 and KIP-569.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..config import INT_MAX, SETTINGS, BrokerConfig, Setting, Value

__all__ = ["LIST_SETTINGS", "ConfigEntry", "ConfigSource", "broker_entries", "topic_entries"]

LIST_SETTINGS = frozenset({"cleanup.policy", "log.cleanup.policy"})
"""Settings that are lists: only these can be appended to and subtracted from."""


class ConfigSource(IntEnum):
    """Where a value comes from."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class ConfigType(IntEnum):
    """What a value is."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of one resource; `synonyms` (name, value, source) begins with the one in force."""

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
        for row in SETTINGS
        if row.topic
    ]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every setting of this broker; none can be changed while it runs."""
    return [_entry(row.name, row, config, None, read_only=True) for row in SETTINGS]


def _entry(
    name: str, row: Setting, config: BrokerConfig, override: str | None, *, read_only: bool
) -> ConfigEntry:
    static = config.overrides().get(row.name)
    synonyms: list[tuple[str, str, ConfigSource]] = []
    if override is not None:
        synonyms.append((name, override, ConfigSource.DYNAMIC_TOPIC))
    if static is not None:
        synonyms.append((row.name, _text(static), ConfigSource.STATIC_BROKER))
    synonyms.append((row.name, _text(row.default), ConfigSource.DEFAULT))
    return ConfigEntry(
        name=name,
        value=synonyms[0][1],
        source=synonyms[0][2],
        read_only=read_only,
        type=_type(row),
        doc=row.doc,
        synonyms=tuple(synonyms),
    )


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(row: Setting) -> ConfigType:
    if isinstance(row.default, bool):
        return ConfigType.BOOLEAN
    if isinstance(row.default, int):
        fits = row.high is not None and row.high <= INT_MAX
        return ConfigType.INT if fits else ConfigType.LONG
    return ConfigType.LIST if row.name in LIST_SETTINGS else ConfigType.STRING
