"""The settings of single groups (resource type GROUP): for that group they replace the broker's.

What may fail: ConfigError for an unknown name, and for a value out of the bounds that the broker's settings give.
Source: Kafka's GroupConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import ConfigError
from .setting import INT_MAX, Setting, Value
from .streams_table import STICKY
from .table import BY_NAME
from .values import BrokerConfig

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
SHARE_SESSION = "share.session.timeout.ms"
SHARE_HEARTBEAT = "share.heartbeat.interval.ms"
SHARE_INTERVAL = "share.assignment.interval.ms"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_DELIVERIES = "share.delivery.count.limit"
SHARE_LOCKS = "share.partition.max.record.locks"
SHARE_RENEWALS = "share.renew.acknowledge.enable"
SHARE_RESET = "share.auto.offset.reset"
SHARE_ISOLATION = "share.isolation.level"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPIES = "errors.deadletterqueue.copy.record.enable"
STREAMS_SESSION = "streams.session.timeout.ms"
STREAMS_HEARTBEAT = "streams.heartbeat.interval.ms"
STREAMS_INTERVAL = "streams.assignment.interval.ms"
STREAMS_STANDBYS = "streams.num.standby.replicas"
STREAMS_DELAY = "streams.initial.rebalance.delay.ms"
STREAMS_OFFSETS = "streams.task.offset.interval.ms"
STREAMS_LAG = "streams.acceptable.recovery.lag"
STREAMS_WARMUPS = "streams.num.warmup.replicas"
STREAMS_TAGS = "streams.rack.aware.assignment.tags"
STREAMS_ASSIGNOR = "streams.assignor.name"
_STREAMS = (
    *(STREAMS_SESSION, STREAMS_HEARTBEAT, STREAMS_INTERVAL, STREAMS_STANDBYS, STREAMS_DELAY),
    *(STREAMS_OFFSETS, STREAMS_LAG, STREAMS_WARMUPS, STREAMS_TAGS),
)

_DURATION = r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+([.,]\d{0,9})?S)?)?"
"""ISO 8601, as java.time.Duration reads it."""

GROUP_SETTINGS: Mapping[str, Setting] = {
    **{
        name: replace(BY_NAME[f"group.{name}"], name=name)
        for name in (SESSION, HEARTBEAT, INTERVAL, SHARE_SESSION, SHARE_HEARTBEAT, SHARE_INTERVAL, *_STREAMS)
    },
    STREAMS_ASSIGNOR: Setting(
        name=STREAMS_ASSIGNOR,
        default=STICKY,
        doc="the assignor of a streams group, one of group.streams.assignors",
        choices=(STICKY,),
    ),
    SHARE_LOCK_DURATION: replace(BY_NAME[f"group.{SHARE_LOCK_DURATION}"], name=SHARE_LOCK_DURATION, high=INT_MAX),
    SHARE_RESET: Setting(
        name=SHARE_RESET,
        default="latest",
        doc="where a share group begins to read a partition: earliest, latest, by_duration: and an ISO 8601 duration",
        pattern=f"(?i:earliest|latest|{_DURATION})",
    ),
    SHARE_ISOLATION: Setting(
        name=SHARE_ISOLATION,
        default="read_uncommitted",
        doc="whether a share group gets records of transactions that are open or were aborted",
        choices=("read_committed", "read_uncommitted"),
    ),
    SHARE_DELIVERIES: replace(BY_NAME[f"group.{SHARE_DELIVERIES}"], name=SHARE_DELIVERIES, high=INT_MAX),
    SHARE_LOCKS: replace(BY_NAME[f"group.{SHARE_LOCKS}"], name=SHARE_LOCKS, high=INT_MAX),
    SHARE_RENEWALS: Setting(
        name=SHARE_RENEWALS, default=True, doc="whether members of a share group may renew the locks of records"
    ),
    DEAD_LETTER_TOPIC: Setting(
        name=DEAD_LETTER_TOPIC,
        default="",
        doc="the topic to which records of a share group are copied that no member gets any more; empty: none",
    ),
    DEAD_LETTER_COPIES: Setting(
        name=DEAD_LETTER_COPIES,
        default=False,
        doc="whether such a copy has the key and the value of the record",
    ),
}
"""A group that does not set a number has the broker's value, under the name `group.` and this name; a text that is not
set has its default."""
OTHER_BROKER_NAMES: Mapping[str, str] = {STREAMS_ASSIGNOR: "group.streams.assignors"}
"""The broker's setting, where its name is not `group.` and the name of the group's."""


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
        for name, setting in GROUP_SETTINGS.items()
        if isinstance(setting.default, int) and not isinstance(setting.default, bool)
    }
    for name in (
        *(HEARTBEAT, SESSION, SHARE_HEARTBEAT, SHARE_SESSION, SHARE_LOCK_DURATION, SHARE_DELIVERIES, SHARE_LOCKS),
        *(STREAMS_HEARTBEAT, STREAMS_SESSION, INTERVAL, SHARE_INTERVAL, STREAMS_INTERVAL),
    ):
        if name not in given:
            continue
        kind, short = name.split(".", 1)
        least, most = f"group.{kind}.min.{short}", f"group.{kind}.max.{short}"
        if values[name] < broker.number(least):
            raise ConfigError(f"{name} must be greater than or equal to {least}")
        if values[name] > broker.number(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    if str(given.get(DEAD_LETTER_TOPIC, "")).startswith("__"):
        raise ConfigError(f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'")
    least = "group.streams.min.task.offset.interval.ms"
    if values[STREAMS_OFFSETS] < broker.number(least):
        raise ConfigError(f"{STREAMS_OFFSETS} must be greater than or equal to {least}")
    tags = str(given.get(STREAMS_TAGS, "")).split(",")
    if len(set(tags)) < len(tags):
        raise ConfigError(f"{STREAMS_TAGS} must not contain duplicate tag keys.")
    for name, most in (
        (STREAMS_STANDBYS, "group.streams.max.standby.replicas"),
        (STREAMS_WARMUPS, "group.streams.max.warmup.replicas"),
    ):
        if values[name] > broker.number(most):
            raise ConfigError(f"{name} must be less than or equal to {most}")
    for session, heartbeat in (
        (SESSION, HEARTBEAT),
        (SHARE_SESSION, SHARE_HEARTBEAT),
        (STREAMS_SESSION, STREAMS_HEARTBEAT),
    ):
        if values[session] <= values[heartbeat]:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def group_interval_ms(config: BrokerConfig, name: str, group_id: str) -> int:
    """The assignment interval of a group, within the bounds of the broker: values of older bounds may be stored."""
    kind, short = name.split(".", 1)
    low, high = config.number(f"group.{kind}.min.{short}"), config.number(f"group.{kind}.max.{short}")
    return min(max(config.group_number(group_id, name), low), high)


def group_text(config: BrokerConfig, group_id: str, name: str) -> str:
    """The text that is set for one group under the name of a group's setting, else the broker's, else the default."""
    found = config.groups.get(group_id, {}).get(name)
    if found is None:
        of_broker = f"group.{name}"
        found = config.value(of_broker) if of_broker in BY_NAME else GROUP_SETTINGS[name].default
    return str(found)


def group_flag(config: BrokerConfig, group_id: str, name: str) -> bool:
    """Whether a group has a setting that brokers do not have; the setting's default where the group has none."""
    return bool(config.groups.get(group_id, {}).get(name, GROUP_SETTINGS[name].default))
