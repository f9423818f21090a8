"""The settings of single groups (resource type GROUP): for that group they replace the broker's.

What may fail: ConfigError for an unknown name, and for a value out of the bounds that the broker's settings give.
Source: Kafka's GroupConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ConfigError
from .setting import Setting, Value
from .table import BY_NAME
from .values import BrokerConfig

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"

GROUP_SETTINGS: Mapping[str, Setting] = {
    name: replace(BY_NAME[f"group.{name}"], name=name) for name in (SESSION, HEARTBEAT)
}
"""A group that does not set one of these has the broker's value, under the name `group.` and this name."""


def parse_group_settings(raw: Mapping[str, object]) -> dict[str, Value]:
    """Typed values; ConfigError for an unknown name or a value that does not fit."""
    unknown = next((name for name in raw if name not in GROUP_SETTINGS), None)
    if unknown is not None:
        known = ", ".join(GROUP_SETTINGS)
        raise ConfigError(f"Unknown group config name: {unknown}; brokers have {known}")
    return {name: GROUP_SETTINGS[name].parse(value) for name, value in raw.items()}


def validate_group_settings(raw: Mapping[str, object], broker: BrokerConfig) -> None:
    """As `parse_group_settings`; also ConfigError out of bounds, which depend on the settings of the broker."""
    given = parse_group_settings(raw)
    values = {
        name: value if isinstance(value := given.get(name), int) else broker.number(f"group.{name}")
        for name in GROUP_SETTINGS
    }
    for name in (HEARTBEAT, SESSION):
        kind, short = name.split(".", 1)
        least, most = f"group.{kind}.min.{short}", f"group.{kind}.max.{short}"
        if values[name] < broker.number(least):
            raise ConfigError(f"{name} must be greater than or equal to {least}")
        if values[name] > broker.number(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    if values[SESSION] <= values[HEARTBEAT]:
        raise ConfigError(f"{SESSION} must be greater than {HEARTBEAT}")
