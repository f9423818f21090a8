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
STREAMS_SESSION = "streams.session.timeout.ms"
STREAMS_HEARTBEAT = "streams.heartbeat.interval.ms"
STREAMS_STANDBYS = "streams.num.standby.replicas"
STREAMS_DELAY = "streams.initial.rebalance.delay.ms"
_STREAMS = (STREAMS_SESSION, STREAMS_HEARTBEAT, STREAMS_STANDBYS, STREAMS_DELAY)

GROUP_SETTINGS: Mapping[str, Setting] = {
    name: replace(BY_NAME[f"group.{name}"], name=name) for name in (SESSION, HEARTBEAT, *_STREAMS)
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
    for name in (HEARTBEAT, SESSION, STREAMS_HEARTBEAT, STREAMS_SESSION):
        kind, short = name.split(".", 1)
        least, most = f"group.{kind}.min.{short}", f"group.{kind}.max.{short}"
        if values[name] < broker.number(least):
            raise ConfigError(f"{name} must be greater than or equal to {least}")
        if values[name] > broker.number(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    most = "group.streams.max.standby.replicas"
    if values[STREAMS_STANDBYS] > broker.number(most):
        raise ConfigError(f"{STREAMS_STANDBYS} must be less than or equal to {most}")
    for session, heartbeat in ((SESSION, HEARTBEAT), (STREAMS_SESSION, STREAMS_HEARTBEAT)):
        if values[session] <= values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")
