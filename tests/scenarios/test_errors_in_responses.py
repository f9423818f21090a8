"""Errors in responses move unmodified clients as Apache Kafka's own would (K2)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from itertools import count, takewhile

import pytest
from confluent_kafka import Consumer, Producer
from harrow import Harrow, Topic, VerdictError, fail_response, leader, refuse_request
from kafka import KafkaConsumer
from waiting import until

RECORDS = 20
READER = "resets"


Reader = Callable[[], list[int]]


@contextmanager
def confluent_reader(servers: str, topic: str) -> Generator[Reader]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": READER,
            "client.id": READER,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.subscribe([topic])

    def read() -> list[int]:
        messages = consumer.consume(50, 0.2)
        return [offset for row in messages if not row.error() and (offset := row.offset()) is not None]

    yield read
    consumer.close()


@contextmanager
def kafka_python_reader(servers: str, topic: str) -> Generator[Reader]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=READER,
        client_id=READER,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=50,
    )

    def read() -> list[int]:
        found = consumer.poll(200)
        return [row.offset for rows in found.values() for row in rows]

    yield read
    consumer.close()


@pytest.mark.parametrize("reader", [confluent_reader, kafka_python_reader])
def test_an_offset_out_of_range_lets_the_consumer_reset_its_offset(
    harrow: Harrow, reader: Callable[[str, str], AbstractContextManager[Reader]]
) -> None:
    orders = harrow.topic("orders", partitions=1)
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("orders", str(number))
    assert producer.flush(20) == 0
    with reader(harrow.bootstrap_servers, "orders") as read:
        reads_again_after_the_error(harrow, orders, producer, read)


def reads_again_after_the_error(harrow: Harrow, orders: Topic, producer: Producer, read: Reader) -> None:
    seen: list[int] = []

    def has_read(records: int) -> bool:
        seen.extend(read())
        return len(seen) >= records

    until(lambda: has_read(RECORDS), "all records")
    error = refuse_request(
        "Fetch", "OFFSET_OUT_OF_RANGE", target=leader(orders, 0), client=READER, where={"topic": "orders"}
    )
    with harrow.chaos(error) as chaos:
        for number in takewhile(lambda _: chaos.running, count(RECORDS)):
            producer.produce("orders", str(number))
            producer.flush(20)
            seen.extend(read())
    until(lambda: has_read(0) and seen.count(0) == 2, "the first record again")
    assert seen[:RECORDS] == list(range(RECORDS))


def test_an_error_after_the_append_is_a_duplicate_without_idempotence(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=1)
    failed = fail_response("Produce", "REQUEST_TIMED_OUT", nth=3, count=2, target=leader(orders, 0))
    producer = harrow.producer(**{"enable.idempotence": False, "retries": 5, "linger.ms": 0})
    with harrow.chaos(failed) as chaos:
        for number in takewhile(lambda _: chaos.running, count()):
            producer.produce("orders", str(number))
            producer.flush(10)
    with pytest.raises(VerdictError) as caught:
        harrow.verify(orders, guarantee="exactly-once")
    text = str(caught.value)
    assert "duplicate" in text
    assert "had appended them and responded with REQUEST_TIMED_OUT" in text
