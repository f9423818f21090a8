"""The limits of share groups from the broker's settings.

Owns: `ShareLimits`, and how the `group.share.…` settings of membership are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...config import BrokerConfig
from ...config.group_table import SHARE_HEARTBEAT, SHARE_INTERVAL, SHARE_SESSION, group_interval_ms
from ...errors import ConfigError
from ..consumer.subscriptions import TopicView

ASSIGNOR = "simple"
ASSIGNOR_NAMES = (ASSIGNOR, "org.apache.kafka.coordinator.group.assignor.SimpleAssignor")
"""Kafka also accepts the class name."""


BOUNDED = (
    (
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    (
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    (
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    (
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    (
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    (
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
)
"""A setting, and those with its least and its greatest value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """What the rules of a share group need: topics, settings."""

    view: TopicView
    max_size: int
    initialize_retry_ms: int
    """Partitions that are initializing are initialized again after so long."""
    group_number: Callable[[str, str], int]
    """The value of a setting for one group: its own, else the broker's."""
    assignment_interval_ms: Callable[[str], int]
    """At least so long after one target assignment of a group the next one is computed (KIP-1263)."""
    wall_ms: Callable[[], int]

    def session_timeout_ms(self, group_id: str) -> int:
        """A member that sends no heartbeat for so long loses its membership."""
        return self.group_number(group_id, SHARE_SESSION)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members shall send heartbeats."""
        return self.group_number(group_id, SHARE_HEARTBEAT)


def share_rules(config: BrokerConfig, view: TopicView, wall_ms: Callable[[], int]) -> ShareRules:
    """The rules; ConfigError where settings contradict each other."""
    for name, least, most in BOUNDED:
        value, low, high = config.number(name), config.number(least), config.number(most)
        if not low <= value <= high:
            raise ConfigError(f"{name}={value}: expected a number from {low} ({least}) to {high} ({most})")
    if config.number(f"group.{SHARE_HEARTBEAT}") >= config.number(f"group.{SHARE_SESSION}"):
        raise ConfigError(f"group.{SHARE_HEARTBEAT} must be less than group.{SHARE_SESSION}")
    assignors = config.text("group.share.assignors")
    if assignors not in ASSIGNOR_NAMES:
        raise ConfigError(f"group.share.assignors={assignors!r}: expected {ASSIGNOR}, the only assignor of brokers")
    return ShareRules(
        view=view,
        max_size=config.number("group.share.max.size"),
        initialize_retry_ms=max(
            config.number("group.share.initialize.retry.interval.ms"), config.number("offsets.commit.timeout.ms")
        ),
        group_number=config.group_number,
        assignment_interval_ms=partial(group_interval_ms, config, SHARE_INTERVAL),
        wall_ms=wall_ms,
    )
