"""The settings of logs and topics: segments, flushes, retention, compaction, times, codecs (see `table.py`).

Owns: `LOG_SETTINGS`, which brokers have and most of which topics override; `TOPIC_SETTINGS`, which only topics have;
`THROTTLE_RATES`, which a running broker gets and no broker has at its start.

Source: Apache Kafka's documentation of broker and topic configurations.
"""

from __future__ import annotations

import sys

from .setting import (
    INT_MAX,
    LONG_MAX,
    SEGMENT_BYTES_LEAST,
    Change,
    Setting,
    bool_setting,
    int_setting,
    long_setting,
    share_setting,
    text_setting,
)

_CODEC = "a log keeps every batch in the producer's codec"
_TIERED = "there is no tiered storage"
_THROTTLED = "replication is not throttled"
_THROTTLED_REPLICAS = r"\*|(\d+:\d+)?(,(\d+:\d+)?)*"  # elements may be empty, as in Kafka


def _in_ms(name: str, default: int, doc: str, low: int, topic: str) -> Setting:
    """A time that Kafka computes from a coarser setting while nothing sets it."""
    return Setting(name=name, default=default, doc=doc, low=low, high=LONG_MAX, topic=topic, unset=True)


LOG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="log.dirs",
        default="",
        doc="data folders, comma separated; relative to the broker's own folder",
        kind="list",
        unset=True,
    ),
    int_setting(
        "log.segment.bytes",
        1_073_741_824,
        "a segment rolls before it exceeds this",
        low=SEGMENT_BYTES_LEAST,
        topic="segment.bytes",
    ),
    Setting(
        name="internal.segment.bytes",
        default=0,
        doc="replaces segment.bytes, and may be smaller than 1 MiB; for tests. Kafka has no lower bound either",
        low=-(2**31),
        high=INT_MAX,
        topic="internal.segment.bytes",
        internal=True,
    ),
    _in_ms("log.roll.ms", 604_800_000, "a segment rolls at this age by record time", 1, "segment.ms"),
    _in_ms("log.roll.jitter.ms", 0, "a segment rolls up to so much before that age, at random", 0, "segment.jitter.ms"),
    int_setting(
        "log.index.interval.bytes", 4_096, "bytes appended between two index entries", topic="index.interval.bytes"
    ),
    int_setting("log.index.size.max.bytes", 10_485_760, "largest index", low=4, topic="segment.index.bytes"),
    long_setting("log.flush.interval.messages", LONG_MAX, "fsync after so many records", low=1, topic="flush.messages"),
    _in_ms("log.flush.interval.ms", LONG_MAX, "fsync after so long", 0, "flush.ms"),
    long_setting(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        "period of the check whether log.flush.interval.ms has passed",
        low=1,
    ),
    int_setting("log.flush.offset.checkpoint.interval.ms", 60_000, "period of the recovery point checkpoint"),
    _in_ms("log.retention.ms", 604_800_000, "segments older than this go; -1: never", -1, "retention.ms"),
    long_setting(
        "log.retention.bytes", -1, "a partition larger than this loses its oldest segments", topic="retention.bytes"
    ),
    long_setting("log.retention.check.interval.ms", 300_000, "period of the retention check", low=1),
    long_setting(
        "log.segment.delete.delay.ms", 60_000, "a .deleted file stays so long", low=0, topic="file.delete.delay.ms"
    ),
    Setting(
        name="log.cleanup.policy",
        default="delete",
        doc="delete, compact or both; '': neither",
        choices=("compact", "delete"),
        kind="list",
        topic="cleanup.policy",
    ),
    # compaction
    bool_setting("log.cleaner.enable", True, "compact the logs whose policy says so"),
    int_setting("log.cleaner.threads", 1, "logs that are compacted at once", low=0, change=Change.CLUSTER),
    Setting(
        name="log.cleaner.io.max.bytes.per.second",
        default=sys.float_info.max,
        doc="most bytes that all cleaners together read and write in a second",
        low=1,
        change=Change.CLUSTER,
    ),
    long_setting(
        "log.cleaner.dedupe.buffer.size",
        134_217_728,
        "bytes for the keys of all cleaners; what does not fit waits for the next round",
        low=1,
        change=Change.CLUSTER,
    ),
    share_setting("log.cleaner.io.buffer.load.factor", 0.9, "share of those bytes that is used", change=Change.CLUSTER),
    long_setting(
        "log.cleaner.backoff.ms", 15_000, "pause of a cleaner with nothing to do", low=0, change=Change.CLUSTER
    ),
    share_setting(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "a log is compacted when more of it is dirty",
        topic="min.cleanable.dirty.ratio",
    ),
    long_setting(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "a record is not compacted before it is so old",
        low=0,
        topic="min.compaction.lag.ms",
    ),
    long_setting(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "a log with a dirty record older than this is compacted whatever its ratio",
        low=1,
        topic="max.compaction.lag.ms",
    ),
    long_setting(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "tombstones and transaction markers stay so long once they are compacted",
        low=0,
        topic="delete.retention.ms",
    ),
    Setting(
        name="compression.type",
        default="producer",
        doc="codec of the log",
        choices=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        topic="compression.type",
        stored=_CODEC,
    ),
    text_setting(
        "log.message.timestamp.type",
        "CreateTime",
        "who sets record timestamps",
        ("CreateTime", "LogAppendTime"),
        topic="message.timestamp.type",
    ),
    Setting(
        name="compression.gzip.level",
        default=-1,
        doc="level of gzip",
        low=-1,
        high=9,
        pattern="-1|[1-9]",
        topic="compression.gzip.level",
        stored=_CODEC,
    ),
    Setting(
        name="compression.lz4.level",
        default=9,
        doc="level of lz4",
        low=1,
        high=17,
        topic="compression.lz4.level",
        stored=_CODEC,
    ),
    Setting(
        name="compression.zstd.level",
        default=3,
        doc="level of zstd",
        low=-131_072,
        high=22,
        topic="compression.zstd.level",
        stored=_CODEC,
    ),
    long_setting(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        "a producer's time may be so much earlier than the broker's",
        low=0,
        topic="message.timestamp.before.max.ms",
    ),
    long_setting(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "a producer's time may be so much later than the broker's",
        low=0,
        topic="message.timestamp.after.max.ms",
    ),
    Setting(
        name="log.local.retention.ms",
        default=-2,
        doc="age of segments that stay beside tiered storage",
        low=-2,
        high=LONG_MAX,
        topic="local.retention.ms",
        stored=_TIERED,
    ),
    Setting(
        name="log.local.retention.bytes",
        default=-2,
        doc="bytes that stay beside tiered storage",
        low=-2,
        high=LONG_MAX,
        topic="local.retention.bytes",
        stored=_TIERED,
    ),
    Setting(
        name="log.remote.copy.lag.ms",
        default=0,
        doc="age of a segment that goes to tiered storage",
        low=-1,
        high=LONG_MAX,
        topic="remote.copy.lag.ms",
        stored=_TIERED,
    ),
    Setting(
        name="log.remote.copy.lag.bytes",
        default=-1,
        doc="bytes behind which a segment goes to tiered storage",
        low=-1,
        high=LONG_MAX,
        topic="remote.copy.lag.bytes",
        stored=_TIERED,
    ),
    Setting(
        name="max.decompressed.message.bytes",
        default=INT_MAX - 8,
        doc="largest record of a compressed batch; a batch of more than 128 MiB when decompressed is refused anyway",
        low=0,
        high=INT_MAX,
        topic="max.decompressed.message.bytes",
    ),
    Setting(
        name="log.preallocate",
        default=False,
        doc="preallocate segment files",
        topic="preallocate",
        stored="a segment file grows as it is written",
    ),
)

TOPIC_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="leader.replication.throttled.replicas",
        default="",
        doc="replicas whose leaders throttle replication, as partition:broker,… or *",
        kind="list",
        pattern=_THROTTLED_REPLICAS,
        topic="leader.replication.throttled.replicas",
        stored=_THROTTLED,
    ),
    Setting(
        name="follower.replication.throttled.replicas",
        default="",
        doc="replicas that throttle replication, as partition:broker,… or *",
        kind="list",
        pattern=_THROTTLED_REPLICAS,
        topic="follower.replication.throttled.replicas",
        stored=_THROTTLED,
    ),
    Setting(
        name="remote.storage.enable",
        default=False,
        doc="tiered storage",
        topic="remote.storage.enable",
        only_default=_TIERED,
    ),
    Setting(
        name="remote.log.copy.disable",
        default=False,
        doc="tiered storage gets no new segments",
        topic="remote.log.copy.disable",
        stored=_TIERED,
    ),
    Setting(
        name="errors.deadletterqueue.group.enable",
        default=False,
        doc="share groups may use the topic as their dead-letter queue",
        topic="errors.deadletterqueue.group.enable",
    ),
    Setting(
        name="remote.log.delete.on.disable",
        default=False,
        doc="segments in tiered storage go when it is disabled",
        topic="remote.log.delete.on.disable",
        stored=_TIERED,
    ),
)
"""Settings that only topics have."""

THROTTLE_RATES: tuple[Setting, ...] = tuple(
    Setting(name=name, default=LONG_MAX, doc=doc, low=0, high=LONG_MAX, stored=_THROTTLED, change=Change.CLUSTER)
    for name, doc in (
        ("leader.replication.throttled.rate", "bytes a second that a leader sends to followers"),
        ("follower.replication.throttled.rate", "bytes a second that a follower fetches"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "bytes a second that move between data folders"),
    )
)
"""Rates that tools set while replicas are reassigned (KIP-73): brokers store and describe them."""
