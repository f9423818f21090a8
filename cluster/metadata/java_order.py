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
"""The capacity of Kafka's map of the settings of a broker (350) and of a topic (37)."""
_SHARED_BUCKETS: tuple[str, ...] = (
    "remote.copy.lag.bytes",
    "remote.log.delete.on.disable",
    "segment.bytes",
    "retention.ms",
    "compression.gzip.level",
    "flush.messages",
    "compression.zstd.level",
    "max.compaction.lag.ms",
    "file.delete.delay.ms",
    "index.interval.bytes",
    "min.cleanable.dirty.ratio",
    "retention.bytes",
    "delete.retention.ms",
    "offsets.topic.num.partitions",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "principal.builder.class",
    "errors.deadletterqueue.auto.create.topics.enable",
    "min.insync.replicas",
    "sasl.oauthbearer.expected.audience",
    "group.consumer.max.session.timeout.ms",
    "num.recovery.threads.per.data.dir",
    "ssl.keystore.type",
    "fetch.purgatory.purge.interval.requests",
    "group.streams.num.standby.replicas",
    "group.share.record.lock.duration.ms",
    "remote.log.manager.fetch.max.bytes.per.second",
    "group.share.session.timeout.ms",
    "max.connection.creation.rate",
    "log.flush.offset.checkpoint.interval.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.jwks.endpoint.url",
    "group.consumer.max.size",
    "group.consumer.assignors",
    "log.message.timestamp.type",
    "max.connections",
    "delegation.token.expiry.time.ms",
    "group.consumer.assignment.interval.ms",
    "group.share.heartbeat.interval.ms",
    "remote.fetch.max.wait.ms",
    "group.streams.max.heartbeat.interval.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "log.local.retention.ms",
    "remote.log.reader.threads",
    "share.coordinator.snapshot.update.records.per.snapshot",
    "transaction.partition.verification.enable",
    "replica.selector.class",
    "replica.fetch.response.max.bytes",
    "group.max.session.timeout.ms",
    "group.consumer.heartbeat.interval.ms",
    "log.retention.minutes",
    "log.segment.delete.delay.ms",
    "controlled.shutdown.enable",
    "log.message.timestamp.before.max.ms",
    "group.share.min.partition.max.record.locks",
    "remote.log.manager.copier.thread.pool.size",
    "sasl.login.refresh.min.period.seconds",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "sasl.kerberos.kinit.cmd",
    "log.cleaner.io.max.bytes.per.second",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "log.cleaner.min.cleanable.ratio",
    "group.share.min.record.lock.duration.ms",
    "ssl.keystore.key",
    "group.streams.initial.rebalance.delay.ms",
    "replica.fetch.min.bytes",
    "group.streams.max.session.timeout.ms",
    "sasl.oauthbearer.sub.claim.name",
    "producer.purgatory.purge.interval.requests",
    "group.share.assignors",
    "log.remote.copy.lag.ms",
    "log.retention.check.interval.ms",
    "group.consumer.session.timeout.ms",
    "sasl.login.refresh.window.jitter",
    "group.streams.session.timeout.ms",
    "metric.reporters",
    "log.remote.copy.lag.bytes",
    "default.replication.factor",
    "ssl.truststore.password",
    "group.share.assignment.interval.ms",
    "log.preallocate",
    "sasl.kerberos.principal.to.local.rules",
    "num.io.threads",
    "group.streams.max.size",
    "sasl.login.refresh.buffer.seconds",
    "connection.failed.authentication.delay.ms",
    "group.share.max.heartbeat.interval.ms",
    "share.coordinator.write.timeout.ms",
    "delete.topic.enable",
    "group.share.max.record.lock.duration.ms",
    "share.fetch.purgatory.purge.interval.requests",
    "log.cleaner.enable",
    "transaction.state.log.min.isr",
    "ssl.secure.random.implementation",
    "replica.fetch.backoff.ms",
    "group.share.delivery.count.limit",
    "ssl.allow.san.changes",
    "listeners",
    "delegation.token.expiry.check.interval.ms",
    "remote.log.manager.expiration.thread.pool.size",
    "ssl.keymanager.algorithm",
    "config.providers",
    "ssl.truststore.certificates",
    "sasl.server.max.receive.size",
    "group.streams.max.standby.replicas",
    "compression.lz4.level",
    "log.roll.hours",
    "log.roll.jitter.ms",
    "transaction.state.log.segment.bytes",
    "offset.metadata.max.bytes",
    "ssl.truststore.location",
    "compression.type",
    "group.consumer.max.heartbeat.interval.ms",
    "sasl.login.refresh.window.factor",
    "group.share.max.size",
    "group.share.max.partition.max.record.locks",
    "ssl.key.password",
    "ssl.keystore.location",
    "sasl.enabled.mechanisms",
    "log.cleaner.io.buffer.load.factor",
    "transaction.max.timeout.ms",
    "group.max.size",
    "max.request.partition.size.limit",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "delegation.token.max.lifetime.ms",
    "advertised.listeners",
    "group.coordinator.cached.buffer.max.bytes",
    "group.consumer.max.assignment.interval.ms",
    "group.streams.min.assignment.interval.ms",
    "sasl.oauthbearer.scope.claim.name",
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
