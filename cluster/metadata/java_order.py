"""The order in which Apache Kafka lists settings and quotas: that of `java.util.HashMap`.

Owns: `hash_order`. A map of Java lists its keys by their bucket, which is the hash of the key in as many bits as the
capacity has; keys of one bucket have the order in which they were added. Kafka adds settings in the order of its
definitions: `_SHARED_BUCKETS` has those of its settings that share a bucket, in that order.

Source: `java.util.HashMap.hash`, `resize`; `tests/conformance/test_settings_as_kafka.py` compares the order.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..internal_topics import java_hash

BROKER_CAPACITY, TOPIC_CAPACITY = 512, 64
"""The capacity of Kafka's map of the settings of a broker (320) and of a topic (33)."""
_SHARED_BUCKETS: tuple[str, ...] = (
    "default.replication.factor",
    "ssl.truststore.password",
    "replica.fetch.response.max.bytes",
    "group.max.session.timeout.ms",
    "group.consumer.heartbeat.interval.ms",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "group.consumer.session.timeout.ms",
    "sasl.login.refresh.window.jitter",
    "log.roll.jitter.ms",
    "transaction.state.log.segment.bytes",
    "log.flush.interval.ms",
    "principal.builder.class",
    "log.retention.minutes",
    "log.segment.delete.delay.ms",
    "log.cleaner.io.buffer.load.factor",
    "transaction.max.timeout.ms",
    "compression.lz4.level",
    "log.roll.hours",
    "log.preallocate",
    "sasl.kerberos.principal.to.local.rules",
    "offset.metadata.max.bytes",
    "ssl.truststore.location",
    "group.consumer.max.session.timeout.ms",
    "num.recovery.threads.per.data.dir",
    "ssl.keystore.type",
    "group.consumer.max.heartbeat.interval.ms",
    "sasl.login.refresh.window.factor",
    "group.consumer.max.size",
    "group.consumer.assignors",
    "transaction.state.log.min.isr",
    "ssl.secure.random.implementation",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "sasl.kerberos.kinit.cmd",
    "num.io.threads",
    "sasl.login.refresh.buffer.seconds",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "flush.messages",
    "compression.zstd.level",
    "ssl.allow.san.changes",
    "retention.bytes",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "max.connections",
    "delegation.token.expiry.time.ms",
    "max.request.partition.size.limit",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "delegation.token.max.lifetime.ms",
)
_RANKS = {name: rank for rank, name in enumerate(_SHARED_BUCKETS)}


def capacity_of(entries: int, least: int = 16) -> int:
    """The capacity of a map that grew from `least` to so many entries: it doubles when three quarters are used."""
    capacity = least
    while entries > capacity * 3 // 4:
        capacity *= 2
    return capacity


def bucket(hashed: int, capacity: int) -> int:
    """The bucket of a key with this `hashCode`."""
    unsigned = hashed & 0xFFFFFFFF
    return (unsigned ^ unsigned >> 16) & (capacity - 1)


def hash_order(names: Iterable[str], capacity: int = 0) -> list[str]:
    """The names as a map with these keys lists them; 0: the capacity of a map that grew to their number."""
    found = list(names)
    size = capacity or capacity_of(len(found))
    return sorted(found, key=lambda name: (bucket(java_hash(name), size), _RANKS.get(name, -1)))


def entries_hash(entries: Iterable[tuple[str, str | None]]) -> int:
    """`hashCode` of a map of texts with these entries: the sum of the hash of each key xor that of its value."""
    return sum(
        java_hash(key) & 0xFFFFFFFF ^ (0 if value is None else java_hash(value) & 0xFFFFFFFF) for key, value in entries
    )
