"""The limits of consumer groups from the broker's settings.

Owns: how the `group.consumer.…` settings are read.
"""

from __future__ import annotations

from ...config import BrokerConfig
from ...errors import ConfigError
from .assignors import ASSIGNORS
from .target_assignments import ConsumerLimits

UPGRADES = ("bidirectional", "upgrade")
DOWNGRADES = ("bidirectional", "downgrade")
CLASSES = "org.apache.kafka.coordinator.group.assignor."
"""Kafka also accepts the class names of its assignors."""


def consumer_limits(config: BrokerConfig) -> ConsumerLimits:
    """The limits; ConfigError where settings contradict each other."""
    policy = config.text("group.consumer.migration.policy").lower()
    return ConsumerLimits(
        session_timeout_ms=_between(
            config,
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
        heartbeat_interval_ms=_between(
            config,
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        assignment_interval_ms=_between(
            config,
            "group.consumer.assignment.interval.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
        max_size=config.number("group.consumer.max.size"),
        assignors=_assignors(config.text("group.consumer.assignors")),
        upgrades=policy in UPGRADES,
        downgrades=policy in DOWNGRADES,
        classic_max_size=config.number("group.max.size"),
    )


def _between(config: BrokerConfig, name: str, least: str, greatest: str) -> int:
    value, low, high = config.number(name), config.number(least), config.number(greatest)
    if not low <= value <= high:
        raise ConfigError(f"{name}={value}: expected a number from {low} ({least}) to {high} ({greatest})")
    return value


def _assignors(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for part in text.split(","):
        name = part.strip().removeprefix(CLASSES).removesuffix("Assignor").lower()
        if name not in ASSIGNORS:
            raise ConfigError(
                f"group.consumer.assignors={text!r}: {part.strip()!r} is not an assignor; expected "
                f"{', '.join(ASSIGNORS)}"
            )
        names.append(name)
    return tuple(dict.fromkeys(names))
