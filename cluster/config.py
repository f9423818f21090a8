"""Broker and topic settings under Apache Kafka's own names, units and defaults.

Owns: the table of settings (`SETTINGS`), parsing and validation, and what a topic may override.
A setting that Kafka has and this table lacks is unknown here, and says so with the nearest names.
Harrow's own settings begin with `harrow.`.

Source: Apache Kafka's documentation of broker and topic configurations.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from .errors import ConfigError
from .setting import INT_MAX, LONG_MAX, Setting, Value
from .setting import bool_setting as _bool
from .setting import int_setting as _int
from .setting import long_setting as _long
from .setting import share_setting as _share
from .setting import text_setting as _text

__all__ = [
    "BY_NAME",
    "BY_TOPIC_NAME",
    "INT_MAX",
    "LONG_MAX",
    "SETTINGS",
    "BrokerConfig",
    "Setting",
    "TopicConfig",
    "Value",
    "validate_topic_config",
]


SETTINGS: tuple[Setting, ...] = (
    # replication
    _int("num.partitions", 1, "partitions of an auto-created topic", low=1),
    _int("default.replication.factor", 1, "replicas of an auto-created topic", low=1, high=32767),
    _bool("auto.create.topics.enable", True, "a metadata request or produce may create its topic"),
    _bool("delete.topic.enable", True, "DeleteTopics is allowed"),
    _int(
        "min.insync.replicas",
        1,
        "smallest ISR that acks=all accepts",
        low=1,
        topic="min.insync.replicas",
    ),
    _bool(
        "unclean.leader.election.enable",
        False,
        "elect from outside the ISR rather than be offline",
        topic="unclean.leader.election.enable",
    ),
    _long(
        "replica.lag.time.max.ms",
        30_000,
        "a follower not caught up for so long leaves the ISR",
        low=1,
    ),
    _int("replica.fetch.wait.max.ms", 500, "how long a follower's fetch waits at the leader"),
    _int("replica.fetch.min.bytes", 1, "a follower's fetch answers at this many bytes"),
    _int("replica.fetch.max.bytes", 1_048_576, "most bytes for a partition in a follower's fetch"),
    _int("replica.fetch.response.max.bytes", 10_485_760, "most bytes in a follower's fetch"),
    _int("replica.fetch.backoff.ms", 1_000, "pause of a fetcher after an error"),
    _int("replica.socket.timeout.ms", 30_000, "a peer that has not answered for so long is lost"),
    _long(
        "replica.high.watermark.checkpoint.interval.ms", 5_000, "period of the HW checkpoint", low=1
    ),
    # controller and registry
    _int("broker.id", -1, "this broker's node id; given by the supervisor", low=-1),
    _text("broker.rack", "", "where this broker stands: replicas are spread over racks"),
    _text(
        "zookeeper.connect",
        "",
        "a ZooKeeper ensemble (host:port,…/chroot) instead of the own registry",
    ),
    _int(
        "zookeeper.session.timeout.ms",
        18_000,
        "a broker not heard by the registry for so long is gone",
        low=1,
    ),
    _int(
        "zookeeper.connection.timeout.ms",
        18_000,
        "how long a broker tries to reach the registry",
        low=1,
    ),
    _bool("controlled.shutdown.enable", True, "move leaders away before a broker ends"),
    _bool("auto.leader.rebalance.enable", True, "elect preferred leaders from time to time"),
    _int("leader.imbalance.check.interval.seconds", 300, "period of that check", low=1),
    _int(
        "leader.imbalance.per.broker.percentage",
        10,
        "share of a broker's preferred leaderships that may lie elsewhere",
    ),
    _int(
        "controller.socket.timeout.ms",
        30_000,
        "a broker that has not answered the controller so long is lost",
    ),
    # requests
    _int("request.timeout.ms", 30_000, "how long a broker waits for its own requests"),
    _int(
        "message.max.bytes", 1_048_588, "largest record batch accepted", topic="max.message.bytes"
    ),
    _int("socket.request.max.bytes", 104_857_600, "largest request accepted", low=1),
    _int("fetch.max.bytes", 57_671_680, "most bytes in a fetch response", low=1024),
    # listeners (listeners.py has their rules)
    _text(
        "listeners",
        "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "where the broker listens, as NAME://host:port,…; the supervisor resolves port 0 to a free one",
    ),
    _text("advertised.listeners", "", "addresses given to clients and brokers; '': listeners"),
    _text(
        "listener.security.protocol.map",
        "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "the security protocol of each listener, as NAME:PROTOCOL,…; only PLAINTEXT is served",
    ),
    _text("inter.broker.listener.name", "BROKERS", "the listener on which brokers talk to brokers"),
    _int("max.connections", INT_MAX, "open connections of the broker; more wait to be accepted"),
    _int("max.connections.per.ip", INT_MAX, "open connections from one address; more are closed"),
    _int(
        "queued.max.requests",
        500,
        "requests of clients that were read and wait for their handler; then reading stops",
        low=1,
    ),
    _int(
        "create.topic.timeout.ms", 10_000, "unused bound of CreateTopics when the client gives none"
    ),
    # log
    _text("log.dirs", "", "data folders, comma separated; relative to the broker's own folder"),
    _int(
        "log.segment.bytes",
        1_073_741_824,
        "a segment rolls before it exceeds this",
        low=14,
        topic="segment.bytes",
    ),
    _long(
        "log.roll.ms",
        604_800_000,
        "a segment rolls at this age by record time",
        low=1,
        topic="segment.ms",
    ),
    _long(
        "log.roll.jitter.ms",
        0,
        "a segment rolls up to so much before that age, at random",
        low=0,
        topic="segment.jitter.ms",
    ),
    _int(
        "log.index.interval.bytes",
        4_096,
        "bytes appended between two index entries",
        topic="index.interval.bytes",
    ),
    _int(
        "log.index.size.max.bytes", 10_485_760, "largest index", low=4, topic="segment.index.bytes"
    ),
    _long(
        "log.flush.interval.messages",
        LONG_MAX,
        "fsync after so many records",
        low=1,
        topic="flush.messages",
    ),
    _long("log.flush.interval.ms", LONG_MAX, "fsync after so long", low=0, topic="flush.ms"),
    _long(
        "log.flush.scheduler.interval.ms",
        1_000,
        "period of the check whether log.flush.interval.ms has passed",
        low=1,
    ),
    _int(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "period of the recovery point checkpoint"
    ),
    _long(
        "log.retention.ms",
        604_800_000,
        "segments older than this go; -1: never",
        topic="retention.ms",
    ),
    _long(
        "log.retention.bytes",
        -1,
        "a partition larger than this loses its oldest segments",
        topic="retention.bytes",
    ),
    _long("log.retention.check.interval.ms", 300_000, "period of the retention check", low=1),
    _long(
        "log.segment.delete.delay.ms",
        60_000,
        "a .deleted file stays so long",
        low=0,
        topic="file.delete.delay.ms",
    ),
    _text("log.cleanup.policy", "delete", "delete, compact or both", topic="cleanup.policy"),
    # compaction
    _bool("log.cleaner.enable", True, "compact the logs whose policy says so"),
    _int("log.cleaner.threads", 1, "logs that are compacted at once", low=0),
    _int(
        "log.cleaner.io.max.bytes.per.second",
        INT_MAX,
        "most bytes that all cleaners together read and write in a second",
        low=1,
    ),
    _long(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "bytes for the keys of all cleaners; what does not fit waits for the next round",
        low=1,
    ),
    _share("log.cleaner.io.buffer.load.factor", 0.9, "share of those bytes that is used"),
    _long("log.cleaner.backoff.ms", 15_000, "pause of a cleaner with nothing to do", low=0),
    _share(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "a log is compacted when more of it is dirty",
        topic="min.cleanable.dirty.ratio",
    ),
    _long(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "a record is not compacted before it is so old",
        low=0,
        topic="min.compaction.lag.ms",
    ),
    _long(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "a log with a dirty record older than this is compacted whatever its ratio",
        low=1,
        topic="max.compaction.lag.ms",
    ),
    _long(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "tombstones and transaction markers stay so long once they are compacted",
        low=0,
        topic="delete.retention.ms",
    ),
    _text(
        "compression.type",
        "producer",
        "codec of the log; producer: as sent",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        topic="compression.type",
    ),
    _text(
        "log.message.timestamp.type",
        "CreateTime",
        "who sets record timestamps",
        ("CreateTime", "LogAppendTime"),
        topic="message.timestamp.type",
    ),
    _bool("log.preallocate", False, "preallocate segment files", topic="preallocate"),
    # producers
    _int(
        "producer.id.expiration.ms",
        86_400_000,
        "a silent producer id is forgotten after this",
        low=1,
    ),
    # groups
    _int("offsets.topic.num.partitions", 50, "partitions of __consumer_offsets", low=1),
    _int(
        "offsets.topic.replication.factor", 3, "replicas of __consumer_offsets", low=1, high=32767
    ),
    _int("offsets.topic.segment.bytes", 104_857_600, "segment size of __consumer_offsets", low=1),
    _int("offsets.commit.timeout.ms", 5_000, "how long a commit waits for its replicas", low=1),
    _int(
        "offsets.retention.minutes",
        10_080,
        "committed offsets of an empty group expire after this",
        low=1,
    ),
    _int(
        "offsets.retention.check.interval.ms",
        600_000,
        "how often coordinators check for expired offsets",
        low=1,
    ),
    _int("offset.metadata.max.bytes", 4_096, "longest metadata string of a commit"),
    _int("group.min.session.timeout.ms", 6_000, "shortest session timeout a member may ask for"),
    _int("group.max.session.timeout.ms", 1_800_000, "longest session timeout a member may ask for"),
    _int(
        "group.initial.rebalance.delay.ms", 3_000, "how long an empty group waits for more members"
    ),
    _int("group.max.size", INT_MAX, "most members of a group", low=1),
    # transactions
    _int("transaction.state.log.num.partitions", 50, "partitions of __transaction_state", low=1),
    _int(
        "transaction.state.log.replication.factor",
        3,
        "replicas of __transaction_state",
        low=1,
        high=32767,
    ),
    _int("transaction.state.log.min.isr", 2, "smallest ISR of __transaction_state", low=1),
    _int(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "segment size of __transaction_state",
        low=14,
    ),
    # purgatories
    _int(
        "producer.purgatory.purge.interval.requests",
        1_000,
        "completed operations before a purge",
        low=1,
    ),
    _int(
        "fetch.purgatory.purge.interval.requests",
        1_000,
        "completed operations before a purge",
        low=1,
    ),
    _int(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "completed operations before a purge",
        low=1,
    ),
    # Harrow's own
    _text(
        "harrow.replica.truncation",
        "kip-320",
        "how a follower truncates (C7)",
        ("high-watermark", "kip-101", "kip-279", "kip-320"),
    ),
    _int(
        "harrow.trace.hw.interval.ms",
        100,
        "most often that a partition's HW is traced; 0: every change",
    ),
    _int(
        "harrow.metrics.port",
        -1,
        "metrics in Prometheus' format over HTTP on loopback; 0: any free port, -1: none",
        low=-1,
        high=65535,
    ),
    _bool("harrow.tap", False, "write what the wire acknowledged and delivered to the tap (J6)"),
    _int("harrow.tail.bytes", 4_194_304, "bytes of each log kept in memory for fetches at its end"),
    _int("harrow.tail.total.bytes", 50_331_648, "bytes of all logs together kept so"),
    _bool("harrow.power.loss", False, "journal unsynced writes, so that power_loss can be played"),
)

BY_NAME: Mapping[str, Setting] = {row.name: row for row in SETTINGS}
BY_TOPIC_NAME: Mapping[str, Setting] = {row.topic: row for row in SETTINGS if row.topic}


def _unknown(name: str, known: Mapping[str, Setting], kind: str) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"{name}: no such {kind} setting{hint}")


class _Settings:
    """Values over defaults, read by Kafka's name with the type that the reader names."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def value(self, name: str) -> Value:
        """What is set for `name`, or its default."""
        raise NotImplementedError

    def number(self, name: str) -> int:
        """The whole number set for `name`, in the unit that its name ends with."""
        value = self.value(name)
        assert isinstance(value, int), f"{name} is not a number"
        return value

    def share(self, name: str) -> float:
        """The number from 0 to 1 set for `name`."""
        value = self.value(name)
        assert isinstance(value, float), f"{name} is not a share"
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


COARSE: Mapping[str, tuple[str, int]] = {
    "log.roll.hours": ("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", 3_600_000),
}
"""Kafka's names in hours and minutes: of those that are set the finest counts, in the order ms, minutes, hours."""


class BrokerConfig(_Settings):
    """A broker's settings. `BrokerConfig.parse({"min.insync.replicas": "2"})`; unknown names are refused.

    What administrators change while it runs lies above what it was started with: `dynamic` of this broker,
    then `dynamic_default` of all brokers (KIP-226). The metadata room fills both.
    """

    __slots__ = ("dynamic", "dynamic_default")

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(values)
        self.dynamic: dict[str, Value] = {}
        self.dynamic_default: dict[str, Value] = {}

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> BrokerConfig:
        """Validate and type `raw`; ConfigError for an unknown name or a value that does not fit."""
        values: dict[str, Value] = {}
        for name, value in raw.items():
            if name in BY_NAME:
                values[name] = BY_NAME[name].parse(value)
            elif name not in COARSE:
                raise _unknown(name, BY_NAME, "broker")
        for name, (fine, unit_ms) in COARSE.items():
            if name in raw and fine not in values:
                number = int(replace(BY_NAME[fine], name=name).parse(raw[name]))
                values[fine] = number * unit_ms if number > 0 else number
        return cls(values)

    def value(self, name: str) -> Value:
        """What is set for `name`, or its default."""
        for layer in (self.dynamic, self.dynamic_default, self._values):
            if name in layer:
                return layer[name]
        return BY_NAME[name].default

    def overrides(self) -> dict[str, Value]:
        """What was set, without the defaults."""
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
        """What is set for the topic, else for its broker under the broker's name, else the default."""
        found = self._values.get(name)
        return self._broker.value(BY_TOPIC_NAME[name].name) if found is None else found


def validate_topic_config(raw: Mapping[str, object]) -> dict[str, Value]:
    """Validate topic-level settings; ConfigError for an unknown name or a value that does not fit."""
    values: dict[str, Value] = {}
    for name, value in raw.items():
        if name not in BY_TOPIC_NAME:
            raise _unknown(name, BY_TOPIC_NAME, "topic")
        values[name] = BY_TOPIC_NAME[name].parse(value)
    return values
