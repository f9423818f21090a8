"""Topics have the settings of Apache Kafka 4.2: names, types, defaults, what is refused (A4, A7)."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import until

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
CHANGED = {
    "compression.type": "zstd",
    "compression.zstd.level": "7",
    "leader.replication.throttled.replicas": "0:1,1:2",
    "local.retention.ms": "1000",
    "message.timestamp.before.max.ms": "5000",
    "preallocate": "true",
    "remote.log.copy.disable": "false",
    "retention.ms": "-1",
}


def described(kafka: Any, topic: str) -> dict[str, tuple[Any, ...]]:
    """Value, type, source, read-only and number of synonyms of each setting."""
    result = kafka.raw(1).settings(2, topic)
    assert result.error_code == 0, result
    return {
        row.name: (row.value, row.config_type, row.config_source, row.read_only, row.is_sensitive)
        for row in result.configs
    }


def altered(kafka: Any, topic: str, *changes: tuple[str, int, str | None]) -> str:
    controller = kafka.raw(kafka.raw(1).metadata().controller_id)
    result = controller.change_settings(2, topic, *changes)
    return str(result.error_code.name)


# the settings of a topic of Apache Kafka 4.2 with the default settings of brokers: value and type
DEFAULTS: dict[str, tuple[str, int]] = {
    "cleanup.policy": ("delete", 7),
    "compression.gzip.level": ("-1", 3),
    "compression.lz4.level": ("9", 3),
    "compression.type": ("producer", 2),
    "compression.zstd.level": ("3", 3),
    "delete.retention.ms": ("86400000", 5),
    "errors.deadletterqueue.group.enable": ("false", 1),
    "file.delete.delay.ms": ("60000", 5),
    "flush.messages": ("9223372036854775807", 5),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "index.interval.bytes": ("4096", 3),
    "leader.replication.throttled.replicas": ("", 7),
    "local.retention.bytes": ("-2", 5),
    "local.retention.ms": ("-2", 5),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "max.decompressed.message.bytes": ("2147483639", 3),
    "max.message.bytes": ("1048588", 3),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "min.compaction.lag.ms": ("0", 5),
    "min.insync.replicas": ("1", 3),
    "preallocate": ("false", 1),
    "remote.copy.lag.bytes": ("-1", 5),
    "remote.copy.lag.ms": ("0", 5),
    "remote.log.copy.disable": ("false", 1),
    "remote.log.delete.on.disable": ("false", 1),
    "remote.storage.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "retention.ms": ("604800000", 5),
    "segment.bytes": ("1073741824", 3),
    "segment.index.bytes": ("10485760", 3),
    "segment.jitter.ms": ("0", 5),
    "segment.ms": ("604800000", 5),
    "unclean.leader.election.enable": ("false", 1),
}


def test_a_topic_has_the_settings_of_kafka_with_their_types_and_defaults(kafka: Any) -> None:
    found = described(kafka, kafka.topic("settings", 1))
    wanted = {name: (*row, 5, False, False) for name, row in DEFAULTS.items()}
    own = {"min.insync.replicas"}  # both clusters set it
    assert {name: row for name, row in found.items() if name not in own} == {
        name: row for name, row in wanted.items() if name not in own
    }
    assert found.keys() == wanted.keys()


def test_settings_that_change_nothing_are_stored_and_described(kafka: Any) -> None:
    topic = kafka.topic("stored", 1)
    assert altered(kafka, topic, *((name, _SET, value) for name, value in CHANGED.items())) == "none"
    changed = {name: (value, 1) for name, value in CHANGED.items()}
    until(lambda: {name: described(kafka, topic)[name][:3:2] for name in CHANGED} == changed)
    assert altered(kafka, topic, *((name, _DELETE, None) for name in CHANGED)) == "none"
    wanted = {name: DEFAULTS[name] for name in CHANGED}
    until(lambda: {name: described(kafka, topic)[name][:2] for name in CHANGED} == wanted)


def test_lists_are_appended_to_and_subtracted_from(kafka: Any) -> None:
    topic = kafka.topic("lists", 1)
    name = "follower.replication.throttled.replicas"
    assert altered(kafka, topic, (name, _APPEND, "0:1")) == "none"
    assert altered(kafka, topic, (name, _APPEND, "0:2,0:1")) == "none"
    until(lambda: described(kafka, topic)[name][0] == "0:1,0:2")
    assert altered(kafka, topic, (name, _SUBTRACT, "0:1")) == "none"
    until(lambda: described(kafka, topic)[name][0] == "0:2")
    assert altered(kafka, topic, ("retention.ms", _APPEND, "5")) == "invalid_config"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nonsense", "1"),
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "foo"),
        ("compression.type", "foo"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "a:b"),
        ("message.timestamp.type", "foo"),
        ("message.timestamp.after.max.ms", "-1"),
        ("min.cleanable.dirty.ratio", "2"),
        ("remote.storage.enable", "true"),
        ("local.retention.bytes", "-3"),
    ],
)
def test_values_that_are_not_valid_are_refused(kafka: Any, name: str, value: str) -> None:
    topic = kafka.topic("invalid", 1)
    assert altered(kafka, topic, (name, _SET, value)) == "invalid_config"
    assert (
        name not in DEFAULTS or described(kafka, topic)[name][:2] == DEFAULTS[name] or (name == "min.insync.replicas")
    )
