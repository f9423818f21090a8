"""kafka-python, unmodified, against our brokers (A1)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from harrow import Harrow
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition as Where
from logs_on_disk import codecs_on_disk
from waiting import until

pytestmark = pytest.mark.harrow(scope="session")


def test_creating_and_deleting_a_topic_shows_in_its_metadata(harrow: Harrow) -> None:
    admin: Any = KafkaAdminClient(bootstrap_servers=harrow.bootstrap_servers)
    name = f"kp-{uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=3)])
    until(lambda: name in admin.list_topics(), "the broker that is asked hears of it")
    until(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 2, "both partitions")
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics(), "the deletion")
    admin.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_producing_and_consuming_with_each_codec_returns_the_values(harrow: Harrow, codec: str | None) -> None:
    topic = harrow.topic(f"kp-{codec}", partitions=1)
    settings: dict[str, Any] = {"compression_type": codec}
    producer: Any = KafkaProducer(bootstrap_servers=harrow.bootstrap_servers, acks="all", linger_ms=50, **settings)
    values = [f"value-{i}-".encode() * 8 for i in range(100)]
    for future in [producer.send(topic.name, value) for value in values]:
        future.get(timeout=30)
    producer.close()
    consumer: Any = KafkaConsumer(
        topic.name,
        bootstrap_servers=harrow.bootstrap_servers,
        group_id=f"kp-{uuid4().hex[:6]}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    got = [message.value for _, message in zip(values, consumer, strict=False)]
    consumer.close()
    assert got == values
    harrow.cluster.await_converged()
    wanted = {codec or "none"}
    assert codecs_on_disk(harrow.cluster.folder, topic.name) == {1: wanted, 2: wanted, 3: wanted}


def test_offsets_for_times_returns_the_next_offset(harrow: Harrow) -> None:
    topic = harrow.topic("kp-time", partitions=1)
    producer: Any = KafkaProducer(bootstrap_servers=harrow.bootstrap_servers, acks="all", linger_ms=0)
    for i in range(5):
        producer.send(topic.name, b"v", timestamp_ms=1_700_000_000_000 + i * 1000).get(timeout=30)
    producer.close()
    consumer: Any = KafkaConsumer(bootstrap_servers=harrow.bootstrap_servers)
    where = Where(topic.name, 0)
    assert consumer.offsets_for_times({where: 1_700_000_001_500})[where].offset == 2
    assert consumer.beginning_offsets([where]) == {where: 0}
    assert consumer.end_offsets([where]) == {where: 5}
    consumer.close()


@pytest.mark.parametrize("pinned", [(2, 8), (4, 0), (4, 2)])
def test_a_client_that_pins_the_version_of_kafka_works_as_without(harrow: Harrow, pinned: tuple[int, int]) -> None:
    topic = harrow.topic("kp-pinned", partitions=1)
    settings: dict[str, Any] = {"bootstrap_servers": harrow.bootstrap_servers, "api_version": pinned}
    producer: Any = KafkaProducer(enable_idempotence=True, **settings)
    values = [f"value {i}".encode() for i in range(20)]
    for value in values:
        producer.send(topic.name, value)
    producer.flush(30)
    producer.close()
    consumer: Any = KafkaConsumer(
        topic.name,
        group_id=f"kp-{uuid4().hex[:6]}",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        **settings,
    )
    got = [message.value for _, message in zip(values, consumer, strict=False)]
    where = Where(topic.name, 0)
    assert consumer.end_offsets([where]) == {where: 20}
    consumer.commit()
    assert consumer.committed(where) == 20
    consumer.close()
    assert got == values
