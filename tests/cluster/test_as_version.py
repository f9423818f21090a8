"""Clients work with brokers that list and serve what an older release of Kafka does (`harrow.as.version`, A2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from harrow.cluster import Cluster
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.release_table import RELEASES
from kafka import KafkaConsumer, KafkaProducer
from long_runs import some
from raw_kafka import RawKafka
from waiting import until

VALUES = [b"%d" % number for number in range(20)]
GROUP = "readers"


def by_confluent(servers: str, topic: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payments", "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in VALUES:
        producer.produce(topic, value)
    producer.commit_transaction(20)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def has_all() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return len(found) == len(VALUES)

    try:
        until(has_all)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def by_kafka_python(servers: str, topic: str) -> list[bytes]:
    with_group: dict[str, Any] = {"group_id": GROUP, "auto_offset_reset": "earliest"}
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="payments")
    producer.init_transactions()
    producer.begin_transaction()
    for value in VALUES:
        producer.send(topic, value)
    producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, **with_group)
    found: list[bytes] = []

    def has_all() -> bool:
        for rows in consumer.poll(timeout_ms=200).values():
            found.extend(row.value for row in rows)
        return len(found) == len(VALUES)

    try:
        until(has_all)
        consumer.commit()
    finally:
        consumer.close()
    return found


def by_aiokafka(servers: str, topic: str) -> list[bytes]:
    async def both() -> list[bytes]:
        producer: Any = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="payments")
        async with producer, producer.transaction():
            for value in VALUES:
                await producer.send(topic, value)
        consumer: Any = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
        )
        async with consumer:
            found = [(await asyncio.wait_for(consumer.getone(), 30)).value or b"" for _ in VALUES]
            await consumer.commit()
        return found

    return asyncio.run(both())


CLIENTS: list[Callable[[str, str], list[bytes]]] = [by_confluent, by_kafka_python, by_aiokafka]
# each release with another client first, so that `some` has every release once
PAIRS = [
    (release, CLIENTS[(number + turn) % len(CLIENTS)])
    for number, release in enumerate(sorted(RELEASES))
    for turn in range(len(CLIENTS))
]


@contextmanager
def brokers_of(release: str) -> Generator[Cluster]:
    with Cluster(brokers=1, config={"harrow.as.version": release, "offsets.topic.num.partitions": 1}) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("release", "client"), some(PAIRS, len(RELEASES)), ids=lambda value: getattr(value, "__name__", value)
)
def test_a_transaction_and_a_group_work(release: str, client: Callable[[str, str], list[bytes]]) -> None:
    with brokers_of(release) as cluster:
        with RawKafka(cluster.brokers[1].port) as raw:
            assert raw.create_topic("orders", assignment=[(1,)]).error_code == 0
            until(lambda: bool(raw.metadata("orders").topics[0].partitions), "the broker has the topic")
        assert client(cluster.bootstrap_servers, "orders") == VALUES


def test_a_version_that_the_release_does_not_list_closes_the_connection() -> None:
    with brokers_of("3.9") as cluster, RawKafka(cluster.brokers[1].port) as raw:
        listed = {row.api_key: row.max_version for row in raw.ask(ApiKey.API_VERSIONS, 0).api_keys}
        assert listed[ApiKey.METADATA] == RELEASES["3.9"].apis[ApiKey.METADATA][1] == 12
        assert raw.ask(ApiKey.METADATA, 12, topics=None).brokers
        with pytest.raises(ConnectionError):
            raw.ask(ApiKey.METADATA, 13, topics=None)
