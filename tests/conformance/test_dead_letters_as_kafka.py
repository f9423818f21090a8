"""Dead-letter queues of share groups hold what Apache Kafka 4.4 writes to them (KIP-1191)."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from harrow.cluster.errors import ErrorCode
from harrow.harness.requests.share_member import ACCEPT, REJECT, RELEASE
from share_consumers import ShareConsumer
from waiting import until

GROUP = 32
SET = 0
QUEUE = "errors.deadletterqueue."
ENABLED = {f"{QUEUE}group.enable": "true"}


def servers_of(kafka: Any) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in kafka.ports.values())


def set_up(kafka: Any, group: str, **settings: str) -> None:
    """Gives the group its settings, and begins at the earliest record."""
    given = {"share.auto.offset.reset": "earliest"} | {f"{QUEUE}{key}": value for key, value in settings.items()}
    assert (
        not kafka.raw().change_settings(GROUP, group, *((name, SET, value) for name, value in given.items())).error_code
    )
    for node in kafka.ports:
        link = kafka.raw(node)
        until(partial(_has, link, group, given), "each broker has the settings")


def _has(link: Any, group: str, given: dict[str, str]) -> bool:
    return given.items() <= {row.name: row.value for row in link.settings(GROUP, group).configs}.items()


def send(kafka: Any, topic: str, count: int, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": servers_of(kafka), "log_level": 2, **settings})
    for number in range(count):
        producer.produce(topic, f"value {number}", f"key {number}", headers={"mine": b"1"})
    assert producer.flush(60) == 0


def settle(kafka: Any, topic: str, group: str, kinds: dict[int, list[int]], count: int) -> None:
    """Consumes the topic; a record is acknowledged by `kinds` of its offset, one after the other, else accepted."""
    over = set[int]()
    with ShareConsumer(servers_of(kafka), group, topic) as worker:

        def done() -> bool:
            for record in worker.poll():
                left = kinds.get(record.offset, [])
                kind = left.pop(0) if left else ACCEPT
                (result,) = worker.acknowledge([record], kind)
                assert result.error == 0, result
                if kind != RELEASE or (not left and record.offset in kinds):
                    over.add(record.offset)
            return len(over) == count

        until(done, f"{count} records are over")


def dead_letters(kafka: Any, queue: str, count: int) -> list[tuple[Any, ...]]:
    """The records of the queue's only partition: key, value, headers in order."""
    reader = Consumer({"bootstrap.servers": servers_of(kafka), "group.id": f"reader-{uuid4().hex[:8]}", "log_level": 2})
    reader.assign([TopicPartition(queue, 0, 0)])
    found: list[tuple[Any, ...]] = []

    def complete() -> bool:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            found.append((message.key(), message.value(), message.headers()))
        return len(found) >= count

    until(complete, f"{count} dead letters, now {found}")
    reader.close()
    return found


def expected(topic: str, group: str, offset: int, deliveries: int, text: str) -> list[tuple[str, bytes]]:
    said = {"topic": topic, "partition": 0, "offset": offset, "group": group, "delivery.count": deliveries}
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in {**said, "message": text}.items()]


REJECTED, TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


def test_rejected_records_and_those_that_were_delivered_too_often_are_in_the_queue(kafka: Any) -> None:
    group = f"share-{uuid4().hex[:8]}"
    topic, queue = (
        kafka.topic("orders", 1, 2, 3),
        kafka.topic("dlq.orders", 2, 1, 3, **{f"{QUEUE}group.enable": "true"}),
    )
    set_up(kafka, group, **{"topic.name": queue})
    send(kafka, topic, 6)
    settle(kafka, topic, group, {1: [REJECT], 3: [RELEASE] * 5, 4: [RELEASE, REJECT]}, 6)
    found = sorted(dead_letters(kafka, queue, 3), key=lambda row: row[2][2])
    assert found == [
        (None, None, expected(topic, group, 1, 1, REJECTED)),
        (None, None, expected(topic, group, 3, 5, TOO_OFTEN)),
        (None, None, expected(topic, group, 4, 2, REJECTED)),
    ]


def test_copies_have_the_key_and_the_value_of_the_record(kafka: Any) -> None:
    group = f"share-{uuid4().hex[:8]}"
    topic, queue = (
        kafka.topic("orders", 1, 2, 3),
        kafka.topic("dlq.orders", 1, 2, 3, **{f"{QUEUE}group.enable": "true"}),
    )
    set_up(kafka, group, **{"topic.name": queue, "copy.record.enable": "true"})
    send(kafka, topic, 4, **{"compression.type": "gzip", "linger.ms": 500})
    settle(kafka, topic, group, {0: [REJECT], 2: [REJECT], 3: [REJECT]}, 4)
    found = sorted(dead_letters(kafka, queue, 3), key=lambda row: row[2][2])
    assert found == [(b"key %d" % at, b"value %d" % at, expected(topic, group, at, 1, REJECTED)) for at in (0, 2, 3)], (
        "a header of the record itself is not copied"
    )


def test_a_queue_that_cannot_have_them_stops_no_group(kafka: Any) -> None:
    """The topic is not enabled as a queue: its records are given up."""
    group = f"share-{uuid4().hex[:8]}"
    topic, queue = kafka.topic("orders", 1, 2, 3), kafka.topic("dlq.orders", 1, 2, 3)
    set_up(kafka, group, **{"topic.name": queue})
    send(kafka, topic, 3)
    settle(kafka, topic, group, {0: [REJECT], 1: [REJECT]}, 3)
    until(lambda: _lag(kafka, group, topic) == 0, "the group has no record left")
    assert kafka.raw(1).list_offset(queue, 0, -1).offset == 0


def _lag(kafka: Any, group: str, topic: str) -> int:
    home = kafka.raw().ask(10, 6, key_type=0, coordinator_keys=(group,)).coordinators[0].node_id
    asked = {"group_id": group, "topics": ({"topic_name": topic, "partitions": (0,)},)}
    (found,) = kafka.raw(home).ask(90, 1, groups=(asked,)).groups
    return int(found.topics[0].partitions[0].lag)


def test_settings_of_the_queue_are_checked(kafka: Any) -> None:
    link, group = kafka.raw(), f"share-{uuid4().hex[:8]}"
    answers = {
        (name, value): ErrorCode(link.change_settings(GROUP, group, (name, SET, value)).error_code)
        for name, value in (
            (f"{QUEUE}topic.name", "__queue"),
            (f"{QUEUE}topic.name", "any.name"),
            (f"{QUEUE}topic.name", ""),
            (f"{QUEUE}copy.record.enable", "perhaps"),
            ("share.delivery.count.limit", "1"),
            ("share.delivery.count.limit", "11"),
            ("share.delivery.count.limit", "10"),
            ("share.partition.max.record.locks", "99"),
            ("share.partition.max.record.locks", "4001"),
            ("share.renew.acknowledge.enable", "x"),
        )
    }
    assert [code.name for code in answers.values()] == [
        "invalid_config",
        "none",
        "none",
        "invalid_config",
        "invalid_config",
        "invalid_config",
        "none",
        "invalid_config",
        "invalid_config",
        "invalid_config",
    ]
