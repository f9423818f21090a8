"""aiokafka, unmodified, with our brokers (A1)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Where
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from harrow import Harrow
from logs_on_disk import codecs_on_disk

pytestmark = pytest.mark.harrow(scope="session")


async def round_trip(servers: str, topic: str, codec: str | None, values: list[bytes]) -> list[bytes]:
    producer: Any = AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True, compression_type=codec, linger_ms=20
    )
    await producer.start()
    await asyncio.gather(*[producer.send_and_wait(topic, value, partition=0) for value in values])
    await producer.stop()
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=f"aio-{uuid4().hex[:6]}", auto_offset_reset="earliest"
    )
    await consumer.start()
    got = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in values]
    await consumer.stop()
    return got


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_producing_and_consuming_with_each_codec_returns_the_values(harrow: Harrow, codec: str | None) -> None:
    topic = harrow.topic(f"aio-{codec}", partitions=1)
    values = [f"value-{i}-".encode() * 8 for i in range(100)]
    got = asyncio.run(round_trip(harrow.bootstrap_servers, topic.name, codec, values))
    assert sorted(got) == sorted(values)
    harrow.cluster.await_converged()
    wanted = {codec or "none"}
    assert codecs_on_disk(harrow.cluster.folder, topic.name) == {1: wanted, 2: wanted, 3: wanted}


async def admin_and_times(servers: str, name: str) -> tuple[int, dict[Any, Any], dict[Any, Any]]:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3)])
    await admin.close()
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    for i in range(5):
        await producer.send_and_wait(name, b"v", timestamp_ms=1_700_000_000_000 + i * 1000)
    await producer.stop()
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=servers)
    await consumer.start()
    where = Where(name, 0)
    times = await consumer.offsets_for_times({where: 1_700_000_002_500})
    ends = await consumer.end_offsets([where])
    await consumer.stop()
    return times[where].offset, ends, {where: 5}


def test_offsets_for_times_returns_the_offset_of_a_created_topic(harrow: Harrow) -> None:
    offset, ends, wanted = asyncio.run(admin_and_times(harrow.bootstrap_servers, f"aio-{uuid4().hex[:8]}"))
    assert offset == 3
    assert ends == wanted
