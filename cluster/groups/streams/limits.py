"""The rules of streams groups from the broker's settings.

Owns: how the `group.streams.…` settings are read. May fail: ConfigError where settings contradict each other.
Source: Kafka's GroupCoordinatorConfig.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...config import BrokerConfig
from ...config.group_table import STREAMS_INTERVAL, group_interval_ms, group_text
from ...errors import ConfigError
from ..consumer.subscriptions import TopicView
from .heartbeats import StreamsRules

_BOUNDS: tuple[tuple[str, str | None, str], ...] = (
    (
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    (
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    (
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    ("group.streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
    ("group.streams.num.warmup.replicas", None, "group.streams.max.warmup.replicas"),
    ("group.streams.initial.rebalance.delay.ms", None, ""),
    ("group.streams.acceptable.recovery.lag", None, ""),
    ("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""),
)
"""Setting, the one with its least value (None: 0), the one with its greatest ("": none)."""


def streams_rules(config: BrokerConfig, view: TopicView, wall_ms: Callable[[], int]) -> StreamsRules:
    """The rules; ConfigError where settings contradict each other."""
    for name, least, most in _BOUNDS:
        value = config.number(name)
        low = 0 if least is None else config.number(least)
        high = config.number(most) if most else value
        if not low <= value <= high:
            bounds = f"{low} ({least})" if least is not None else "0"
            raise ConfigError(f"{name}={value}: expected a number from {bounds} to {high} ({most})")
    heartbeat, session = "group.streams.heartbeat.interval.ms", "group.streams.session.timeout.ms"
    if config.number(heartbeat) >= config.number(session):
        raise ConfigError(f"{heartbeat}={config.number(heartbeat)}: expected less than {session}")
    tags = str(config.value("group.streams.rack.aware.assignment.tags")).split(",")
    if len(set(tags)) < len(tags):
        raise ConfigError("group.streams.rack.aware.assignment.tags must not contain duplicate tag keys")
    return StreamsRules(
        view,
        config.number("group.streams.max.size"),
        config.group_number,
        partial(group_text, config),
        partial(group_interval_ms, config, STREAMS_INTERVAL),
        wall_ms,
    )
