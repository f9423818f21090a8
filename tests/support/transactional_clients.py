"""What tests of transactions share: producers with a transactional id, and reads with both isolation levels."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from harrow import Harrow
from waiting import until

TIMEOUT_S = 30
QUIET: dict[str, Any] = {"log_level": 0, "logger": None}
"""A fenced producer logs to stderr otherwise."""


def transactional_producer(servers: str, transactional_id: str = "", **settings: Any) -> Producer:
    """A producer; `init_transactions` is left to the caller."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "transactional.id": transactional_id or f"id-{uuid4().hex[:8]}",
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return Producer(config)


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """Produce within a transaction, and wait until the brokers have the records."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def read(servers: str, topic: str, *, partitions: int = 1, isolation: str = "read_committed") -> list[str]:
    """The values that a new consumer receives up to the end of each partition, which it must reach."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"read-{uuid4().hex[:8]}",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    values: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        unread, deadline = set(range(partitions)), monotonic() + TIMEOUT_S
        while unread:
            assert monotonic() < deadline, f"{topic}: the ends of {unread} were not reached"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
    finally:
        consumer.close()
    return values


def await_ended(servers: str, topic: str, *, partitions: int = 1) -> None:
    """Wait until no transaction is open: a commit or an abort returns before the partitions have its markers."""
    settings = {"bootstrap.servers": servers, "group.id": "ends", "log_level": 0}
    isolations = ("read_committed", "read_uncommitted")
    with ExitStack() as stack:
        readers = [Consumer({**settings, "isolation.level": name}) for name in isolations]
        for reader in readers:
            stack.callback(reader.close)

        def ended() -> bool:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            ends = [[reader.get_watermark_offsets(place, timeout=TIMEOUT_S) for place in places] for reader in readers]
            return ends[0] == ends[1]

        until(ended, f"the end of the transactions of {topic}", amid=(KafkaException,))


def read_both(servers: str, topic: str, *, partitions: int = 1, ended: bool = True) -> tuple[list[str], list[str]]:
    """The values with read_committed, and with read_uncommitted, after all transactions; `ended=False`: now."""
    if ended:
        await_ended(servers, topic, partitions=partitions)
    return (
        read(servers, topic, partitions=partitions),
        read(servers, topic, partitions=partitions, isolation="read_uncommitted"),
    )


@contextmanager
def consumer_of(servers: str, group: str, **settings: Any) -> Generator[Consumer]:
    """A consumer of a group; it is closed at the end."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    consumer = Consumer(config)
    try:
        yield consumer
    finally:
        consumer.close()


def committed_offset(servers: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's committed offset; -1001 where there is none."""
    with consumer_of(servers, group) as consumer:
        (row,) = consumer.committed([TopicPartition(topic, partition)], timeout=TIMEOUT_S)
        return int(row.offset)


def states(harrow: Harrow, topic: str, partition: int = 0) -> dict[int, dict[str, Any]]:
    """The replicas of a partition, by broker, as the brokers report them."""
    return {
        node: row
        for node, rows in harrow.cluster.state().items()
        for row in rows
        if row["topic"] == topic and row["partition"] == partition
    }
