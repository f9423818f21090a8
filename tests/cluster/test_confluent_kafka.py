"""confluent-kafka (librdkafka), unmodified, against our brokers (A1)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as untyped_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow import Harrow
from logs_on_disk import codecs_on_disk

pytestmark = pytest.mark.harrow(scope="session")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(servers: str, topic: str, values: list[bytes], **config: Any) -> list[tuple[int, int]]:
    landed: list[tuple[int, int]] = []
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **config})

    def delivered(error: object, message: Any) -> None:
        if error is None:
            landed.append((message.partition(), message.offset()))
        else:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, key=value[:4], on_delivery=delivered)
    assert producer.flush(30) == 0
    assert not failed
    return landed


def test_creating_and_deleting_a_topic_shows_in_its_metadata(harrow: Harrow) -> None:
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    name = f"t-{uuid4().hex[:8]}"
    made: Any = admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=3)])
    made[name].result(10)
    metadata: Any = admin.list_topics(timeout=10)
    partitions = metadata.topics[name].partitions
    assert sorted(partitions) == [0, 1, 2, 3]
    assert all(sorted(p.replicas) == [1, 2, 3] and p.leader in (1, 2, 3) for p in partitions.values())
    assert len({p.leader for p in partitions.values()}) == 3, "leaders are spread round robin (C9)"
    gone: Any = admin.delete_topics([name])
    gone[name].result(10)
    again: Any = admin.list_topics(timeout=10)
    assert name not in again.topics


def test_more_replicas_than_brokers_is_refused_with_both_numbers(harrow: Harrow) -> None:
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    made: Any = admin.create_topics([NewTopic("too-many", num_partitions=1, replication_factor=5)])
    with pytest.raises(KafkaException, match=r"INVALID_REPLICATION_FACTOR|replication factor") as refusal:
        made["too-many"].result(10)
    assert "5" in str(refusal.value)
    assert "3" in str(refusal.value)


@pytest.mark.parametrize("codec", CODECS)
def test_producing_with_any_codec_stores_that_codec_on_every_replica(harrow: Harrow, codec: str) -> None:
    topic = harrow.topic(f"codec-{codec}", partitions=1)
    values = [harrow.values.sentence().encode() * 4 for _ in range(200)]
    produce(harrow.bootstrap_servers, topic.name, values, **{"compression.type": codec, "linger.ms": 50})
    harrow.cluster.await_converged()
    assert codecs_on_disk(harrow.cluster.folder, topic.name) == {1: {codec}, 2: {codec}, 3: {codec}}


def test_a_group_continues_reading_at_its_committed_offset(harrow: Harrow) -> None:
    topic = harrow.topic("group-read", partitions=3)
    values = [f"{i:05d}".encode() for i in range(500)]
    produce(harrow.bootstrap_servers, topic.name, values)
    group = f"g-{uuid4().hex[:8]}"
    first = read_in_group(harrow.bootstrap_servers, topic.name, group, 300)
    rest = read_in_group(harrow.bootstrap_servers, topic.name, group, 200)
    assert sorted(first + rest) == values


def test_describing_a_group_returns_client_id_and_host_of_a_member(harrow: Harrow) -> None:
    topic = harrow.topic("described")
    produce(harrow.bootstrap_servers, topic.name, [b"v"])
    group = f"g-{uuid4().hex[:8]}"
    consumer = Consumer(
        {
            "bootstrap.servers": harrow.bootstrap_servers,
            "group.id": group,
            "client.id": "till-7",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic.name])
    assert consumer.consume(1, 30)
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    (member,) = admin.describe_consumer_groups([group])[group].result(20).members
    consumer.close()
    assert (member.client_id, member.host) == ("till-7", "/127.0.0.1")


def read_in_group(servers: str, topic: str, group: str, count: int) -> list[bytes]:
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    got: list[bytes] = []
    for _ in range(600):
        if len(got) == count:
            break
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            got.append(message.value() or b"")
            consumer.commit(message=message, asynchronous=False)
    consumer.close()
    assert len(got) == count
    return got


def test_list_offsets_returns_offsets_by_time_and_the_ends(harrow: Harrow) -> None:
    topic = harrow.topic("by-time", partitions=1)
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "acks": "all", "linger.ms": 0})
    for i in range(10):
        producer.produce(topic.name, b"v", partition=0, timestamp=1_700_000_000_000 + i * 1000)
        assert producer.flush(10) == 0
    config = {"bootstrap.servers": harrow.bootstrap_servers, "group.id": "by-time"}
    consumer = Consumer(config)
    assert consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=10) == (0, 10)
    (found,) = consumer.offsets_for_times([TopicPartition(topic.name, 0, 1_700_000_004_500)], timeout=10)
    assert found.offset == 5
    consumer.close()
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    where = TopicPartition(topic.name, 0)
    specs: Any = untyped_admin  # its OffsetSpec has no types
    listed: Any = admin.list_offsets({where: specs.OffsetSpec.max_timestamp()})
    assert listed[where].result(10).offset == 9


def test_producing_to_an_unknown_topic_creates_it(harrow: Harrow) -> None:
    name = f"auto-{uuid4().hex[:8]}"
    assert produce(harrow.bootstrap_servers, name, [b"first"]) == [(0, 0)]
