"""Settings that Apache Kafka changes at run time (KIP-226) and that have no meaning in Harrow's brokers.

Owns: `DYNAMIC_SETTINGS`. A running broker validates, stores and describes them as Kafka does, and nothing changes; at
the start of a broker another value than the default is refused.

Invariant: each row has Kafka's type, default and bounds (`tests/conformance/test_settings_as_kafka.py`).
Source: Apache Kafka's documentation of broker configurations, `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .setting import INT_MAX, LONG_MAX, Change, Setting, Value

_THREADS = "a broker serves all requests on one thread"
_TIERED = "there is no tiered storage"
_SECURITY = "Kerberos and the providers of a JVM are not there"
_CLASS = "a broker loads no Java class"
PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
REPORTER = "org.apache.kafka.common.metrics.JmxReporter"

THREAD_COUNTS = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
"""A running broker at most doubles these, and at most halves them."""


def _numbers() -> Iterator[Setting]:
    for name, default, high, reason in (
        ("background.threads", 10, INT_MAX, _THREADS),
        ("max.connection.creation.rate", INT_MAX, INT_MAX, "connections are not delayed"),
        ("num.io.threads", 8, INT_MAX, _THREADS),
        ("num.network.threads", 3, INT_MAX, _THREADS),
        ("num.recovery.threads.per.data.dir", 2, INT_MAX, _THREADS),
        ("num.replica.fetchers", 1, INT_MAX, "a follower has one fetcher for each leader"),
        ("remote.fetch.max.wait.ms", 500, INT_MAX, _TIERED),
        ("remote.list.offsets.request.timeout.ms", 30_000, LONG_MAX, _TIERED),
        ("remote.log.index.file.cache.total.size.bytes", 1_073_741_824, LONG_MAX, _TIERED),
        ("remote.log.manager.copier.thread.pool.size", 10, INT_MAX, _TIERED),
        ("remote.log.manager.copy.max.bytes.per.second", LONG_MAX, LONG_MAX, _TIERED),
        ("remote.log.manager.expiration.thread.pool.size", 10, INT_MAX, _TIERED),
        ("remote.log.manager.fetch.max.bytes.per.second", LONG_MAX, LONG_MAX, _TIERED),
        ("remote.log.manager.follower.thread.pool.size", 2, INT_MAX, _TIERED),
        ("remote.log.reader.threads", 10, INT_MAX, _TIERED),
    ):
        yield Setting(
            name=name,
            default=default,
            doc=f"without effect: {reason}",
            low=1,
            high=high,
            stored=reason,
            change=Change.CLUSTER,
        )
    yield Setting(
        name="log.cleaner.io.buffer.size",
        default=524_288,
        low=0,
        high=INT_MAX,
        change=Change.CLUSTER,
        doc="without effect: a cleaner reads whole batches",
        stored="a cleaner reads whole batches",
    )


def _classes() -> Iterator[Setting]:
    for name, kind, choices, change in (
        ("principal.builder.class", "class", (PRINCIPALS,), Change.BROKER),
        ("metric.reporters", "list", (REPORTER,), Change.CLUSTER),
        ("config.providers", "list", (), Change.CLUSTER),
    ):
        yield Setting(
            name=name,
            default=choices[0] if choices else "",
            doc=f"without effect: {_CLASS}",
            kind=kind,
            choices=choices,
            stored=_CLASS,
            change=change,
        )
    yield Setting(
        name="ssl.engine.factory.class",
        default="",
        doc=f"without effect: {_CLASS}",
        kind="class",
        pattern="",
        choices=("",),
        unset=True,
        stored=_CLASS,
        change=Change.BROKER,
    )


def _since_4_4() -> Iterator[Setting]:
    """Settings that Kafka 4.3 and 4.4 added."""
    buffers = "a coordinator keeps no buffer"
    rows: tuple[tuple[str, int | bool, str], ...] = (
        ("follower.fetch.last.tiered.offset.enable", False, _TIERED),
        ("group.coordinator.cached.buffer.max.bytes", 1_048_588, buffers),
        ("share.coordinator.cached.buffer.max.bytes", 1_048_588, buffers),
    )
    for name, default, reason in rows:
        is_number = not isinstance(default, bool)
        yield Setting(
            name=name,
            default=default,
            doc=f"without effect: {reason}",
            low=0 if is_number else None,
            high=INT_MAX if is_number else None,
            stored=reason,
            change=Change.CLUSTER,
        )
    for kind in ("consumer", "share", "streams"):
        for prefix, default, what in (
            ("", 1_000, f"least time between two assignments of a {kind} group"),
            ("min.", 0, "least such time of a group"),
            ("max.", 15_000, "longest such time of a group"),
        ):
            yield Setting(
                name=f"group.{kind}.{prefix}assignment.interval.ms",
                default=default,
                doc=what,
                low=0,
                high=INT_MAX,
                change=Change.RESTART if prefix else Change.CLUSTER,
            )
    yield Setting(
        name="cordoned.log.dirs",
        default="",
        doc="without effect: every data folder may get replicas",
        kind="list",
        stored="every data folder may get replicas",
        change=Change.BROKER,
    )


def _security() -> Iterator[Setting]:
    rows: tuple[tuple[str, Value | None, str], ...] = (
        ("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", ""),
        ("sasl.kerberos.min.time.before.relogin", 60_000, ""),
        ("sasl.kerberos.principal.to.local.rules", "DEFAULT", "list"),
        ("sasl.kerberos.service.name", None, ""),
        ("sasl.kerberos.ticket.renew.jitter", 0.05, ""),
        ("sasl.kerberos.ticket.renew.window.factor", 0.8, ""),
        ("sasl.login.refresh.buffer.seconds", 300, "short"),
        ("sasl.login.refresh.min.period.seconds", 60, "short"),
        ("sasl.login.refresh.window.factor", 0.8, ""),
        ("sasl.login.refresh.window.jitter", 0.05, ""),
        ("ssl.keymanager.algorithm", "SunX509", ""),
        ("ssl.provider", None, ""),
        ("ssl.secure.random.implementation", None, ""),
        ("ssl.trustmanager.algorithm", "PKIX", ""),
    )
    for name, default, kind in rows:
        yield _security_setting(name, default, kind, Change.BROKER)


def _security_setting(name: str, default: Value | None, kind: str, change: Change) -> Setting:
    return Setting(
        name=name,
        default="" if default is None else default,
        doc=f"without effect: {_SECURITY}",
        kind=kind,
        unset=default is None,
        stored=_SECURITY,
        change=change,
    )


DYNAMIC_SETTINGS: tuple[Setting, ...] = (*_numbers(), *_classes(), *_since_4_4(), *_security())
