"""Settings as DescribeConfigs reports them: the value, its source, and what it overrides.

Owns: `ConfigEntry`, which is made of a row of `config.BROKER_SETTINGS`, for topics, for brokers and for groups; the
order of the entries is Kafka's (`java_order.py`). A value is the parsed one, as in Kafka; the synonyms of a dynamic
setting of a broker are the texts that were given.

Source: Apache Kafka's `ConfigHelper`; sources and types are the numbers of KIP-226 and KIP-569.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..config import (
    BROKER_SETTINGS,
    BY_NAME,
    BY_TOPIC_NAME,
    GROUP_SETTINGS,
    INT_MAX,
    THROTTLE_RATES,
    BrokerConfig,
    Setting,
    Value,
    setting_of,
)
from ..config.acl_table import OF_AUTHORIZER
from ..config.group_table import OTHER_BROKER_NAMES
from ..errors import ConfigError
from .java_order import BROKER_CAPACITY, TOPIC_CAPACITY, hash_order
from .java_text import text_of

__all__ = [
    "ConfigEntry",
    "ConfigSource",
    "broker_entries",
    "client_metrics_entries",
    "default_broker_entries",
    "group_entries",
    "topic_entries",
]

COARSER = {
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms",),
    "log.retention.minutes": ("log.retention.hours",),
    "log.retention.ms": ("log.retention.minutes", "log.retention.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours",),
    "log.roll.ms": ("log.roll.hours",),
}
"""Settings without a default in Kafka: a value of a broker overrides those of the coarser settings."""

Synonym = tuple[str, str | None, "ConfigSource"]


class ConfigSource(IntEnum):
    """The source of a value."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a value; UNKNOWN of a name that no broker has."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_KINDS = {
    "class": ConfigType.CLASS,
    "list": ConfigType.LIST,
    "password": ConfigType.PASSWORD,
    "short": ConfigType.SHORT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting of one resource; `synonyms` (name, value, source) begins with the effective value, or is empty.

    A value is None where nothing sets it and Kafka has no default, and where it is sensitive.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: ConfigType
    doc: str
    synonyms: tuple[Synonym, ...]
    is_sensitive: bool = False


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a topic with these overrides on this broker; internal settings where they are set."""
    entries = [
        _topic_entry(row, config, overrides.get(name))
        for name, row in BY_TOPIC_NAME.items()
        if name in overrides or not row.internal
    ]
    return _ordered(entries, TOPIC_CAPACITY)


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group with these overrides; below these, the broker's setting is a synonym (Kafka 4.4).

    Internal settings where the group has them, or its broker from the start.
    """
    entries: list[ConfigEntry] = []
    for name, row in GROUP_SETTINGS.items():
        below = OTHER_BROKER_NAMES.get(name, f"group.{name}")
        if row.internal and name not in overrides and below not in config.overrides():
            continue
        value: str | None = text_of(row.default)
        synonyms: tuple[Synonym, ...] = ((name, value, ConfigSource.DEFAULT),)
        if below in BY_NAME:
            brokers = _broker_entry(below, config)
            value, synonyms = brokers.value, brokers.synonyms
        if name in overrides:
            value = overrides[name] if row.internal else _parsed(row, overrides[name])
            synonyms = ((name, value, ConfigSource.GROUP), *synonyms)
        entry = ConfigEntry(
            name=name,
            value=value,
            source=synonyms[0][2],
            read_only=False,
            type=_type(row),
            doc=row.doc,
            synonyms=synonyms,
        )
        entries.append(entry)
    return _ordered(entries)


def client_metrics_entries() -> list[ConfigEntry]:
    """The settings of a subscription to client metrics, which all have their defaults: none can be stored."""
    defaults = (
        ("interval.ms", "300000", ConfigType.INT),
        ("match", "", ConfigType.LIST),
        ("metrics", "", ConfigType.LIST),
    )
    source = ConfigSource.DEFAULT
    return [
        ConfigEntry(name=name, value=value, source=source, read_only=False, type=kind, doc="", synonyms=())
        for name, value, kind in defaults
    ]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every setting of this broker; throttle rates, internal and unknown settings where they are set."""
    given = config.dynamic_texts.keys() | config.dynamic_default_texts.keys()
    static = config.overrides()
    rows = {row.name for row in BROKER_SETTINGS if not row.internal or row.name in static}
    entries = [_broker_entry(name, config) for name in sorted(rows | given)]
    return _ordered(entries, BROKER_CAPACITY)


def default_broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic settings of all brokers."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    entries = [
        _entry(name, setting_of(name), text, [(name, text, source)])
        for name, text in config.dynamic_default_texts.items()
    ]
    return _ordered(entries)


def _ordered(entries: Iterable[ConfigEntry], capacity: int = 0) -> list[ConfigEntry]:
    by_name = {entry.name: entry for entry in entries}
    return [by_name[name] for name in hash_order(by_name, capacity)]


def _topic_entry(row: Setting, config: BrokerConfig, override: str | None) -> ConfigEntry:
    own = row.name in BY_NAME
    synonyms: list[Synonym] = _given(row.name, row, config) if own else []
    if own and row.name not in COARSER and not row.internal:
        synonyms.append((row.name, text_of(row.default), ConfigSource.DEFAULT))
    value = text_of(config.value(row.name) if own else row.default)
    if override is not None:
        value = override if row.internal else _parsed(row, override)
        synonyms.insert(0, (row.topic, value, ConfigSource.DYNAMIC_TOPIC))
    return _entry(row.topic, row, value, synonyms)


def _broker_entry(name: str, config: BrokerConfig) -> ConfigEntry:
    row = setting_of(name)
    synonyms = _given(name, row, config)
    value: str | None = None
    if row is not None and row.name == name:
        for coarser in COARSER.get(name, (name,)):
            synonyms += _defaults(coarser, config, with_static=coarser != name)
        is_set = bool(synonyms) and synonyms[0][0] == name
        value = text_of(config.value(name)) if is_set or not row.unset else None
        synonyms = synonyms if value is not None else []
    elif row is not None:  # of one listener
        value = synonyms[0][1]
        synonyms += _given(row.name, row, config) + _defaults(row.name, config, with_static=False)
    return _entry(name, row, value, synonyms)


def _given(name: str, row: Setting | None, config: BrokerConfig) -> list[Synonym]:
    """What was given for a name, the layer with priority first."""
    static: Value | None = config.overrides().get(name)
    layers: tuple[tuple[str | None, ConfigSource], ...] = (
        (config.dynamic_texts.get(name), ConfigSource.DYNAMIC_BROKER),
        (config.dynamic_default_texts.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (None if row is None or static is None else text_of(static), ConfigSource.STATIC_BROKER),
    )
    return [(name, text, source) for text, source in layers if text is not None]


def _defaults(name: str, config: BrokerConfig, *, with_static: bool) -> list[Synonym]:
    row, found = BY_NAME[name], config.overrides().get(name)
    synonyms: list[Synonym] = []
    if with_static and found is not None:
        synonyms.append((name, text_of(found), ConfigSource.STATIC_BROKER))
    if not row.unset and row not in THROTTLE_RATES and name not in OF_AUTHORIZER:
        synonyms.append((name, text_of(row.default), ConfigSource.DEFAULT))
    return synonyms


def _entry(name: str, row: Setting | None, value: str | None, synonyms: list[Synonym]) -> ConfigEntry:
    if name in OF_AUTHORIZER:
        row = None
    secret = row is None or row.kind == "password"
    is_own = row is not None and name in (row.name, row.topic)
    return ConfigEntry(
        name=name,
        value=None if secret else value,
        source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT,
        read_only=row is None or not is_own or not row.is_dynamic,
        type=ConfigType.UNKNOWN if row is None else _type(row),
        doc="" if row is None else row.doc,
        synonyms=tuple((other, None if secret else text, source) for other, text, source in synonyms),
        is_sensitive=secret,
    )


def _parsed(row: Setting, text: str) -> str:
    with contextlib.suppress(ConfigError):  # of an older version, which allowed other values
        return text_of(row.parse(text))
    return text


def _type(row: Setting) -> ConfigType:
    if row.kind:
        return _KINDS[row.kind]
    if isinstance(row.default, bool):
        return ConfigType.BOOLEAN
    if isinstance(row.default, int):
        fits = row.high is not None and row.high <= INT_MAX
        return ConfigType.INT if fits else ConfigType.LONG
    return ConfigType.DOUBLE if isinstance(row.default, float) else ConfigType.STRING
