"""Texts of values are read as by Apache Kafka's ConfigDef, and written as by Java (A4)."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BY_NAME, BrokerConfig, check_compaction_lags
from harrow.cluster.errors import ConfigError
from harrow.cluster.internal_topics import OFFSETS
from harrow.cluster.metadata.java_text import text_of


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("log.retention.ms", " 05 ", "5"),
        ("log.retention.ms", "+7", "7"),
        ("log.preallocate", " False ", "false"),
        ("log.cleaner.min.cleanable.ratio", "1", "1.0"),
        ("log.cleaner.min.cleanable.ratio", ".5f", "0.5"),
        ("log.cleaner.min.cleanable.ratio", "1e-4", "1.0E-4"),
        ("log.cleaner.min.cleanable.ratio", "0.00123", "0.00123"),
        ("log.cleaner.io.max.bytes.per.second", "12345678", "1.2345678E7"),
        ("log.cleaner.io.max.bytes.per.second", "9999999", "9999999.0"),
        ("log.cleaner.io.max.bytes.per.second", "1e10d", "1.0E10"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "1.7976931348623157E308"),
        ("log.cleanup.policy", " compact ,delete, compact", "compact,delete"),
        ("log.cleanup.policy", "", ""),
        ("ssl.cipher.suites", "a , a,", "a,a,"),
    ],
)
def test_a_value_is_described_as_it_was_parsed(name: str, text: str, shown: str) -> None:
    assert text_of(BY_NAME[name].parse(text)) == shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.retention.ms", "5_0"),
        ("log.retention.ms", "5.0"),
        ("log.retention.ms", "0x5"),
        ("log.retention.ms", ""),
        ("log.retention.ms", "99999999999999999999"),
        ("log.preallocate", "yes"),
        ("log.cleaner.min.cleanable.ratio", "NaN"),
        ("log.cleaner.min.cleanable.ratio", "1_0"),
        ("log.cleaner.min.cleanable.ratio", "1.1"),
        ("log.cleanup.policy", "compact,,delete"),
        ("group.coordinator.rebalance.protocols", "consumer"),
    ],
)
def test_a_text_that_is_no_value_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BY_NAME[name].parse(text)


def test_segments_below_1_mib_are_refused_with_the_remedy() -> None:
    for settings in ({"log.segment.bytes": 1_048_575}, {"log.segment.bytes": 14}):
        with pytest.raises(ConfigError, match=r"from 1048576 .*set internal\.segment\.bytes"):
            BrokerConfig.parse(settings)
    with pytest.raises(ConfigError, match=r"segment\.bytes=600.*set internal\.segment\.bytes"):
        BrokerConfig.parse({}).topic({"segment.bytes": "600"})


@pytest.mark.parametrize(
    ("broker", "topic", "expected"),
    [
        ({}, {}, 2**30),
        ({"log.segment.bytes": 2**20}, {}, 2**20),
        ({"log.segment.bytes": 2**20}, {"segment.bytes": 2**21}, 2**21),
        ({"internal.segment.bytes": 600}, {}, 600),
        ({"internal.segment.bytes": 600}, {"segment.bytes": 2**21}, 2**21),
        ({"internal.segment.bytes": 600}, {"internal.segment.bytes": 700}, 700),
        ({}, {"segment.bytes": 2**21, "internal.segment.bytes": 700}, 700),
        ({"internal.segment.bytes": 600}, {"internal.segment.bytes": -1}, -1),
        ({}, {"internal.segment.bytes": 0}, 0),
    ],
)
def test_internal_segment_bytes_replaces_segment_bytes(
    broker: dict[str, object], topic: dict[str, object], expected: int
) -> None:
    assert BrokerConfig.parse(broker).topic(topic).segment_bytes == expected


def test_an_internal_topic_with_small_segments_can_be_created() -> None:
    config = BrokerConfig.parse({"offsets.topic.segment.bytes": 4_096})
    assert config.topic(OFFSETS.settings(config)).segment_bytes == 4_096


def test_a_lag_before_compaction_above_the_lag_that_forces_it_is_refused() -> None:
    broker = BrokerConfig.parse({"log.cleaner.max.compaction.lag.ms": 9})
    check_compaction_lags(broker.topic({"min.compaction.lag.ms": 9}))
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms \(10\) > max.*\(9\)"):
        check_compaction_lags(broker.topic({"min.compaction.lag.ms": 10}))
