"""The settings of one broker or one topic: parsed values over the defaults of the table.

What may fail: ConfigError for an unknown name (the message has the nearest names) or a value that does not fit.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from ..errors import ConfigError
from .kafka_only import KAFKA_ONLY
from .setting import Setting, Value
from .table import BY_NAME, BY_TOPIC_NAME, COARSE, LISTENER_PREFIX, REFUSED, setting_of


def _unknown(name: str, known: Mapping[str, Setting], kind: str) -> ConfigError:
    if kind == "broker" and name in KAFKA_ONLY:
        return ConfigError(f"{name}: Harrow's brokers do not have this setting of Apache Kafka; remove it")
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"{name}: no such {kind} setting{hint}")


def _implemented(row: Setting, raw: object) -> Value:
    """The value of a broker's setting at its start; ConfigError where it would change nothing."""
    value = row.parse(raw)
    if row.stored and value != row.default:
        raise row.not_implemented(raw, row.stored)
    return value


class _Settings:
    """Values and defaults, read by Kafka's name; each method asserts the type that the caller expects."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def value(self, name: str) -> Value:
        """The value that is set for `name`, or its default."""
        raise NotImplementedError

    def number(self, name: str) -> int:
        """The whole number set for `name`, in the unit that its name ends with."""
        value = self.value(name)
        assert isinstance(value, int), f"{name} is not a number"
        return value

    def real(self, name: str) -> float:
        """The number set for `name`, which may have a fraction."""
        value = self.value(name)
        assert isinstance(value, float), f"{name} is not a number with a fraction"
        return value

    def flag(self, name: str) -> bool:
        """The switch set for `name`."""
        value = self.value(name)
        assert isinstance(value, bool), f"{name} is not a switch"
        return value

    def text(self, name: str) -> str:
        """The text set for `name`."""
        value = self.value(name)
        assert isinstance(value, str), f"{name} is not a text"
        return value


class BrokerConfig(_Settings):
    """A broker's settings. `BrokerConfig.parse({"min.insync.replicas": "2"})`; unknown names are refused.

    Values that administrators change at run time come before the values at its start (KIP-226): first `dynamic`, for
    this broker, then `dynamic_default`, for all brokers. The metadata room fills both.
    """

    __slots__ = ("dynamic", "dynamic_default", "dynamic_default_texts", "dynamic_texts", "groups")

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.dynamic: dict[str, Value] = {}
        self.dynamic_default: dict[str, Value] = {}
        self.dynamic_texts: dict[str, str] = {}
        """What the registry has for this broker, with the names that no broker has; as it was written."""
        self.dynamic_default_texts: dict[str, str] = {}
        """The same for all brokers."""
        self.groups: dict[str, dict[str, Value]] = {}
        """Group id -> what administrators set for that group; the metadata room fills it, too."""

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> BrokerConfig:
        """Validate and type `raw`; ConfigError for an unknown name or a value that does not fit."""
        values: dict[str, Value] = {}
        for name, value in raw.items():
            if name in REFUSED:
                raise ConfigError(f"{name}={value}: {REFUSED[name]}")
            row = setting_of(name)
            if row is None:
                raise _unknown(name, BY_NAME, "broker")
            values[name] = _implemented(row, value)
        return cls(values)

    def value(self, name: str) -> Value:
        """The value that is set for `name` or for a coarser name, or its default."""
        for layer in (self.dynamic, self.dynamic_default, self._values):
            if name in layer:
                return layer[name]
        for coarse, unit_ms in COARSE.get(name, ()):
            if coarse in self._values:
                number = int(self._values[coarse])
                return number * unit_ms if number > 0 else number
        return BY_NAME[name].default

    def of_listener(self, listener: str, name: str, mechanism: str = "") -> Value:
        """The value for a listener, and for a mechanism of it: what is set for it alone, else for all."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        own = f"{prefix}{mechanism.lower()}.{name}" if mechanism else ""
        for full in (own, prefix + name):
            for layer in (self.dynamic, self._values):
                if full in layer:
                    return layer[full]
        return self.value(name)

    def group_number(self, group_id: str, name: str) -> int:
        """The number set for one group under the name of a group's setting, else the broker's."""
        value = self.groups.get(group_id, {}).get(name)
        return value if isinstance(value, int) else self.number(f"group.{name}")

    def overrides(self) -> dict[str, Value]:
        """The values at the start of the broker, without the defaults."""
        return dict(self._values)

    def topic(self, raw: Mapping[str, object] | None = None) -> TopicConfig:
        """The settings of a topic of this broker: topic overrides first, then the broker's, then defaults."""
        return TopicConfig(validate_topic_config(raw or {}), self)


class TopicConfig(_Settings):
    """A topic's settings under their topic-level names (`segment.bytes`, `min.insync.replicas`, …)."""

    __slots__ = ("_broker",)

    def __init__(self, values: Mapping[str, Value], broker: BrokerConfig) -> None:
        super().__init__(values)
        self._broker = broker

    def value(self, name: str) -> Value:
        """The value of the topic, else of its broker under the broker's name, else the default."""
        found = self._values.get(name)
        if found is not None:
            return found
        row = BY_TOPIC_NAME[name]
        return self._broker.value(row.name) if row.name in BY_NAME else row.default

    @property
    def segment_bytes(self) -> int:
        """A segment rolls before it exceeds so many bytes.

        `internal.segment.bytes` replaces `segment.bytes`, but that of the broker does not replace that of the topic.
        """
        for name in ("internal.segment.bytes", "segment.bytes"):
            if name in self._values:
                return self.number(name)
        return self.number("internal.segment.bytes") or self.number("segment.bytes")


def validate_topic_config(raw: Mapping[str, object]) -> dict[str, Value]:
    """Validate topic-level settings; ConfigError for an unknown name or a value that does not fit."""
    values: dict[str, Value] = {}
    for name, value in raw.items():
        if name not in BY_TOPIC_NAME:
            raise _unknown(name, BY_TOPIC_NAME, "topic")
        values[name] = replace(BY_TOPIC_NAME[name], name=name).parse(value)
    return values


def check_compaction_lags(config: TopicConfig) -> None:
    """ConfigError for a topic whose records may be compacted only after they must be."""
    least, most = config.number("min.compaction.lag.ms"), config.number("max.compaction.lag.ms")
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most}); "
            "raise the second or lower the first"
        )
