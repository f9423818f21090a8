"""Internal topics: how they are created, and which partition a key lives in (G1)."""

from __future__ import annotations

import pytest
from harrow.cluster.config import BrokerConfig, validate_topic_config
from harrow.cluster.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS,
    SHARE_STATE,
    TRANSACTIONS,
    InternalTopic,
    java_hash,
    partition_for,
)


@pytest.mark.parametrize(
    ("text", "hashed"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("😀", 1772899)]
)
def test_java_hash_of_a_text_equals_what_java_computes(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


def test_partition_of_a_key_is_the_absolute_hash_modulo_the_partition_count() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50
    # Utils.abs negates; clearing the sign bit would name another partition
    assert java_hash("zzzzzz") < 0
    assert partition_for("zzzzzz", 50) == -java_hash("zzzzzz") % 50


def test_partition_of_a_key_needs_at_least_one_partition() -> None:
    with pytest.raises(AssertionError, match="has 0"):
        partition_for("readers", 0)


@pytest.mark.parametrize("topic", INTERNAL_TOPICS.values(), ids=lambda topic: topic.name)
def test_settings_of_an_internal_topic_are_valid_topic_settings(topic: InternalTopic) -> None:
    config = BrokerConfig.parse({})
    assert topic.partitions(config) == 50
    assert topic.replication_factor(config) == 3
    policy = "delete" if topic is SHARE_STATE else "compact"  # share coordinators delete what no snapshot needs
    assert validate_topic_config(topic.settings(config))["cleanup.policy"] == policy


def test_settings_of_an_internal_topic_follow_the_brokers_settings() -> None:
    config = BrokerConfig.parse(
        {
            "offsets.topic.num.partitions": 5,
            "offsets.topic.segment.bytes": 4096,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.replication.factor": 2,
        }
    )
    assert OFFSETS.partitions(config) == 5
    assert OFFSETS.settings(config)["internal.segment.bytes"] == "4096"
    assert TRANSACTIONS.settings(config)["min.insync.replicas"] == "1"
    assert TRANSACTIONS.replication_factor(config) == 2
