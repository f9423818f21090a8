"""Transactions of aiokafka and kafka-python, unmodified, with our brokers (A1, F2, F6)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from harrow import Harrow
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from transactional_clients import committed_offset, read_both

pytestmark = pytest.mark.harrow(scope="session")


class AbandonedError(Exception):
    """The application gives up a transaction."""


async def with_aiokafka(servers: str, source: str, sink: str, group: str) -> None:
    producer: Any = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"aio-{uuid4().hex[:8]}")
    await producer.start()
    try:
        for number in range(4):
            try:
                async with producer.transaction():
                    await producer.send_and_wait(sink, f"record-{number}".encode(), partition=0)
                    position = {AioPartition(source, 0): 10 + number}
                    await producer.send_offsets_to_transaction(position, group)
                    if number % 2:
                        raise AbandonedError  # noqa: TRY301  (leaves the transaction, as an application would)
            except AbandonedError:
                continue
    finally:
        await producer.stop()


def test_aiokafka_commits_and_aborts_records_and_offsets(harrow: Harrow) -> None:
    servers, group = harrow.bootstrap_servers, f"aio-{uuid4().hex[:6]}"
    source, sink = (harrow.topic(name, partitions=1).name for name in ("aio-in", "aio-out"))
    asyncio.run(with_aiokafka(servers, source, sink, group))
    committed, everything = read_both(servers, sink)
    assert committed == ["record-0", "record-2"]
    assert len(everything) == 4
    assert committed_offset(servers, group, source) == 12


def test_kafka_python_commits_and_aborts_records_and_offsets(harrow: Harrow) -> None:
    servers, group = harrow.bootstrap_servers, f"kp-{uuid4().hex[:6]}"
    source, sink = (harrow.topic(name, partitions=1).name for name in ("kp-in", "kp-out"))
    producer: Any = KafkaProducer(bootstrap_servers=servers, transactional_id=f"kp-{uuid4().hex[:8]}")
    try:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(sink, f"record-{number}".encode(), partition=0).get(timeout=30)
            position = {KafkaPartition(source, 0): OffsetAndMetadata(10 + number, "", -1)}
            producer.send_offsets_to_transaction(position, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()
    assert read_both(servers, sink)[0] == ["record-0", "record-2"]
    assert committed_offset(servers, group, source) == 12
