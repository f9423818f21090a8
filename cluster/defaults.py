"""The defaults of a cluster: Harrow's, which suit tests on one machine, or Apache Kafka's own.

Owns: `cluster_defaults`, what a cluster of Harrow has in place of Kafka's defaults; `kafka_defaults`, which gives each
of these its value of Apache Kafka 4.2 back (`harrow up --defaults kafka`). `docs/settings.md` has both columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from .config import BY_NAME, BrokerConfig, Value
from .log_schedule import FLUSH_CHECK_MS

HARROW, KAFKA = "harrow", "kafka"
DEFAULTS = (HARROW, KAFKA)
"""The words for the two."""
KAFKA_SESSION_TIMEOUT_MS = 9_000
"""`broker.session.timeout.ms` of Apache Kafka 4, which has no ZooKeeper."""
OF_TESTS: Mapping[str, object] = {
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "share.coordinator.state.topic.num.partitions": 6,
}
"""What the fixtures have over that. Kafka's 50 partitions of `__consumer_offsets` are 150 replicas, which the brokers
would create in each test when its first consumer looks for its group's coordinator (0.2 s on two cores)."""
SILENCE_MS = 1500
"""Least `harrow.replica.silence.max.ms`."""
FETCHES_MISSED = 3
"""A follower that can be heard fetches at least once in `replica.fetch.wait.max.ms`."""


ASSIGNED_AT_ONCE: Mapping[str, object] = {
    f"group.{kind}.assignment.interval.ms": 0 for kind in ("consumer", "share", "streams")
}
"""Kafka 4.4 computes a target assignment when the last one is a second old (KIP-1263)."""


def cluster_defaults(brokers: int, config: Mapping[str, object] | None = None) -> dict[str, object]:
    """The settings of a cluster on one machine that differ from Kafka's defaults; `config` overrides each by name.

    A follower that is silent leaves the ISR soon, as after a partition; one that is slow, because the machine is busy,
    has Kafka's own 30 s. With `replica.lag.time.max.ms` in `config`, Kafka's rule decides alone.
    """
    given = dict(config or {})
    replicas = min(3, brokers)
    silence: dict[str, object] = {}
    if "replica.lag.time.max.ms" not in given:
        wait_ms = BrokerConfig.parse(given).number("replica.fetch.wait.max.ms")
        silence["harrow.replica.silence.max.ms"] = max(SILENCE_MS, FETCHES_MISSED * wait_ms)
    return silence | {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 2 if replicas > 2 else 1,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 2 if replicas > 2 else 1,
        "min.insync.replicas": 2 if replicas > 2 else 1,
        "zookeeper.session.timeout.ms": 1500,
        "log.flush.scheduler.interval.ms": FLUSH_CHECK_MS,
        "replica.fetch.backoff.ms": 50,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        **ASSIGNED_AT_ONCE,
    }


def kafka_defaults() -> dict[str, Value]:
    """Apache Kafka's value of every setting that a cluster or a fixture of Harrow has another default for.

    Explicit settings have priority over these. `harrow.tap` is not among them: it has no counterpart in Kafka.
    """
    names = {*cluster_defaults(3), *OF_TESTS, "replica.lag.time.max.ms"}
    values = {name: kafka_value(name) for name in sorted(names)}
    return {name: value for name, value in values.items() if value is not None}


def kafka_value(name: str) -> Value | None:
    """Apache Kafka's default of a setting; None where Kafka has none."""
    if name == "zookeeper.session.timeout.ms":
        return KAFKA_SESSION_TIMEOUT_MS
    return BY_NAME[name].default
