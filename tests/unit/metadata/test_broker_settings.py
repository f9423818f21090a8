"""Which dynamic settings a broker accepts, how it describes them, and in which order (KIP-226)."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BROKER_SETTINGS, BY_TOPIC_NAME, BrokerConfig
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.metadata.broker_settings import check_broker_settings, typed_settings
from harrow.cluster.metadata.config_entries import (
    ConfigEntry,
    ConfigSource,
    ConfigType,
    broker_entries,
    default_broker_entries,
    topic_entries,
)
from harrow.cluster.metadata.java_order import BROKER_CAPACITY, TOPIC_CAPACITY, hash_order

NODE, ALL = "1", ""


def config(**texts: str) -> BrokerConfig:
    """A broker with these dynamic settings; `_` for each dot."""
    found = BrokerConfig.parse({"num.partitions": 3})
    found.dynamic_texts = {name.replace("_", "."): text for name, text in texts.items()}
    found.dynamic = typed_settings(found.dynamic_texts)
    return found


def entry(found: BrokerConfig, name: str) -> ConfigEntry:
    (row,) = [row for row in broker_entries(found) if row.name == name]
    return row


@pytest.mark.parametrize(
    ("texts", "node"),
    [
        ({"num.io.threads": "16"}, NODE),
        ({"num.io.threads": "4"}, ALL),
        ({"log.cleaner.threads": " 2 "}, NODE),
        ({"max.connections": "1"}, ALL),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "a:1"}, NODE),
        ({"sasl.jaas.config": "x"}, NODE),
        ({"an.unknown.name": ""}, ALL),
        ({"listener.name.clients.ssl.key.password": "x"}, NODE),
        ({"listener.name.clients.max.connections": "5"}, ALL),
        ({"listener.name.clients.nonsense": "5"}, NODE),
        ({"log.local.retention.ms": "5", "log.retention.ms": "5"}, NODE),
    ],
)
def test_these_dynamic_settings_are_accepted(texts: dict[str, str], node: str) -> None:
    check_broker_settings(texts, config(), node)


@pytest.mark.parametrize(
    ("texts", "node", "problem"),
    [
        ({"broker.rack": "a", "node.id": "1"}, NODE, "dynamically: broker.rack, node.id"),
        ({"harrow.tap": "true"}, NODE, "dynamically: harrow.tap"),
        ({"num.io.threads": "17"}, NODE, "at most doubles its threads, now 8"),
        ({"num.io.threads": "3"}, NODE, "at least halves"),
        ({"num.io.threads": "x"}, NODE, "num.io.threads='x'"),
        ({"log.cleaner.threads": "0"}, NODE, "log.cleaner.threads=0"),
        ({"log.cleaner.dedupe.buffer.size": "9"}, NODE, "at least 1 MiB of the buffer"),
        ({"max.connections": "0"}, NODE, "max.connections=0"),
        ({"max.connections.per.ip": "0"}, NODE, "set max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "a"}, NODE, "max.connections.per.ip.overrides='a'"),
        ({"log.retention.ms": "0"}, NODE, "log.retention.ms=0"),
        ({"log.local.retention.ms": "6", "log.retention.ms": "5"}, NODE, "at most log.retention"),
        ({"listeners": "CLIENTS://127.0.0.1:1"}, NODE, "restart it with the new ones"),
        ({"sasl.jaas.config": "x"}, ALL, "broker id must be specified: sasl.jaas.config"),
        ({"listener.name.clients.nonsense": "5"}, ALL, "broker id must be specified"),
        ({"ssl.key.password": "x"}, NODE, "using the listener prefix: ssl.key.password"),
        ({"listener.name.clients.max.connections": "x"}, NODE, "max.connections='x'"),
        ({"principal.builder.class": "x"}, NODE, "principal.builder.class='x'"),
    ],
)
def test_these_dynamic_settings_are_refused(texts: dict[str, str], node: str, problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_broker_settings(texts, config(), node)
    assert refused.value.code is ErrorCode.invalid_request
    assert problem in refused.value.message


def test_a_default_of_all_brokers_that_the_broker_overrides_is_not_compared_with_its_threads() -> None:
    check_broker_settings({"num.io.threads": "3"}, config(num_io_threads="16"), ALL)


def test_secrets_and_unknown_names_are_described_without_their_values() -> None:
    found = config(sasl_jaas_config="not shown", a_b="c")
    for name, kind in (("sasl.jaas.config", ConfigType.PASSWORD), ("a.b", ConfigType.UNKNOWN)):
        row = entry(found, name)
        assert (row.value, row.type, row.is_sensitive) == (None, kind, True)
        assert row.synonyms == ((name, None, ConfigSource.DYNAMIC_BROKER),)
    assert entry(found, "a.b").read_only
    assert not any("not shown" in str(row) for row in broker_entries(found))


def test_a_setting_without_a_default_is_null_until_it_is_set() -> None:
    found = config()
    names = ("broker.rack", "replica.selector.class", "inter.broker.listener.name", "log.roll.ms")
    for name in (*names, "log.retention.ms", "log.retention.minutes", "log.flush.interval.ms"):
        row = entry(found, name)
        assert (row.value, row.source, row.synonyms) == (None, ConfigSource.DEFAULT, ())
    found = config(log_retention_ms=" 7 ")
    row = entry(found, "log.retention.ms")
    assert (row.value, row.source) == ("7", ConfigSource.DYNAMIC_BROKER)
    assert row.synonyms == (
        ("log.retention.ms", " 7 ", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_what_all_brokers_have_is_described_as_it_was_written() -> None:
    found = config()
    found.dynamic_default_texts = {"log.cleaner.threads": " 2 ", "a.b": "c"}
    shown = {row.name: (row.value, row.is_sensitive) for row in default_broker_entries(found)}
    assert shown == {"log.cleaner.threads": (" 2 ", False), "a.b": (None, True)}


def test_an_internal_setting_is_described_only_where_it_is_set() -> None:
    name = "internal.segment.bytes"
    assert name not in {row.name for row in topic_entries(config(), {})}
    (row,) = [row for row in topic_entries(config(), {name: " 99 "}) if row.name == name]
    assert (row.value, row.synonyms) == (" 99 ", ((name, " 99 ", ConfigSource.DYNAMIC_TOPIC),))


# as Apache Kafka 4.2 lists them: names that share a bucket among them
OF_TOPICS = ["segment.bytes", "retention.ms", "compression.gzip.level", "flush.messages"]
OF_BROKERS = [
    "log.cleaner.min.compaction.lag.ms",
    "offsets.topic.num.partitions",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "log.flush.interval.messages",
]


def test_entries_have_the_order_of_kafkas_map() -> None:
    topics = hash_order(sorted(BY_TOPIC_NAME), TOPIC_CAPACITY)
    assert topics[0] == "compression.type" and topics[-1] == "segment.index.bytes"
    assert [name for name in topics if name in OF_TOPICS] == OF_TOPICS
    brokers = hash_order(sorted(row.name for row in BROKER_SETTINGS), BROKER_CAPACITY)
    assert [name for name in brokers if name in OF_BROKERS] == OF_BROKERS
    assert [row.name for row in broker_entries(config())][:4] == OF_BROKERS
