"""The topics that belong to the cluster itself, and which partition of them a key lives in.

Owns: the name of each internal topic, the broker settings that give its size, the topic settings it is created
with, and the hash that maps a key (group id, transactional id) to a partition. Every room that needs one of these
imports it from here: coordinators, metadata (creation), replication (clients must not write), faults (targets).

Source: Kafka's `org.apache.kafka.common.internals.Topic`, `GroupCoordinatorConfig`, `TransactionLogConfig`,
`GroupCoordinatorService.partitionFor`, `Utils.abs` and `java.lang.String.hashCode`.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import BrokerConfig

SEGMENT_BYTES_LEAST = 1_048_576
"""A topic with smaller segments has `internal.segment.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """One internal topic: its name, and where its partition count and its topic settings come from."""

    name: str
    partitions_setting: str
    replication_factor_setting: str
    topic_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topic settings with a fixed value."""
    copied_settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topic setting -> broker setting whose value it gets at creation."""

    def partitions(self, config: BrokerConfig) -> int:
        """Partitions that the topic is created with; an existing topic keeps the count it was created with."""
        return config.number(self.partitions_setting)

    def replication_factor(self, config: BrokerConfig) -> int:
        """Replicas of each partition that the topic is created with."""
        return config.number(self.replication_factor_setting)

    def settings(self, config: BrokerConfig) -> dict[str, str]:
        """Topic-level overrides that the topic is created with."""
        copied = {name: config.number(source) for name, source in self.copied_settings.items()}
        if copied["segment.bytes"] < SEGMENT_BYTES_LEAST:
            copied["internal.segment.bytes"] = copied.pop("segment.bytes")
        return {**self.topic_settings, **{name: str(number) for name, number in copied.items()}}


OFFSETS = InternalTopic(
    name="__consumer_offsets",
    partitions_setting="offsets.topic.num.partitions",
    replication_factor_setting="offsets.topic.replication.factor",
    topic_settings={"cleanup.policy": "compact", "compression.type": "producer"},
    copied_settings={"segment.bytes": "offsets.topic.segment.bytes"},
)
"""Groups and committed offsets."""

TRANSACTIONS = InternalTopic(
    name="__transaction_state",
    partitions_setting="transaction.state.log.num.partitions",
    replication_factor_setting="transaction.state.log.replication.factor",
    topic_settings={
        # Kafka adds compression.type=uncompressed; the coordinator's own batches are uncompressed as they are.
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "false",
    },
    copied_settings={
        "min.insync.replicas": "transaction.state.log.min.isr",
        "segment.bytes": "transaction.state.log.segment.bytes",
    },
)
"""State of each transactional id."""

SHARE_STATE = InternalTopic(
    name="__share_group_state",
    partitions_setting="share.coordinator.state.topic.num.partitions",
    replication_factor_setting="share.coordinator.state.topic.replication.factor",
    topic_settings={"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
    copied_settings={
        "min.insync.replicas": "share.coordinator.state.topic.min.isr",
        "segment.bytes": "share.coordinator.state.topic.segment.bytes",
    },
)
"""Delivery state of share groups; the share coordinator removes what is not needed any more."""

INTERNAL_TOPICS: Mapping[str, InternalTopic] = {topic.name: topic for topic in (OFFSETS, TRANSACTIONS, SHARE_STATE)}
"""By name. Clients may read these topics, but only brokers write them."""


_utf_16 = codecs.getencoder("utf-16-be")
"""Its module is imported here, and not by the first request: a broker may have no file descriptor then."""


def java_hash(text: str) -> int:
    """`java.lang.String.hashCode`: over UTF-16 code units, a signed 32-bit number."""
    units, _ = _utf_16(text, "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition whose leader coordinates `key` (a group id or a transactional id).

    Kafka's `Utils.abs`: the absolute value, and 0 for the smallest 32-bit number, which has no absolute value.
    """
    assert partitions > 0, f"no partition for {key!r}: the topic has {partitions}"
    number = java_hash(key)
    return 0 if number == -(2**31) else abs(number) % partitions
