"""The rules of streams groups from the broker's settings.

Owns: how the `group.streams.…` settings are read. May fail: ConfigError where settings contradict each other.
Source: Kafka's GroupCoordinatorConfig.
"""

from __future__ import annotations

from ...config import BrokerConfig
from ...errors import ConfigError
from ..consumer.subscriptions import TopicView
from .heartbeats import StreamsRules

_BOUNDS = (
    ("session.timeout.ms", "min.session.timeout.ms", "max.session.timeout.ms"),
    ("heartbeat.interval.ms", "min.heartbeat.interval.ms", "max.heartbeat.interval.ms"),
    ("num.standby.replicas", None, "max.standby.replicas"),
)


def streams_rules(config: BrokerConfig, view: TopicView) -> StreamsRules:
    """The rules; ConfigError where settings contradict each other."""
    for name, least, most in _BOUNDS:
        value = config.number(f"group.streams.{name}")
        low = 0 if least is None else config.number(f"group.streams.{least}")
        high = config.number(f"group.streams.{most}")
        if not low <= value <= high:
            bounds = f"{low} (group.streams.{least})" if least is not None else "0"
            raise ConfigError(
                f"group.streams.{name}={value}: expected a number from {bounds} to {high} (group.streams.{most})"
            )
    heartbeat, session = "group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"
    if config.number(heartbeat) >= config.number(session):
        raise ConfigError(f"{heartbeat}={config.number(heartbeat)}: expected less than {session}")
    return StreamsRules(view, config.number("group.streams.max.size"), config.group_number)
