"""What worker, scheduler and replay share as consumers: records, commits, and the partitions that they have.

A commit is synchronous: while the group has no coordinator, because its broker failed, it is tried again. After
a rebalance it is given up, and the next owner of the partitions works on the records again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .records import Record

COMMIT_S, RETRY_S = 30.0, 0.1
"""How long a commit waits for a coordinator, and between two attempts."""
# confluent's names of errors of the client begin with an underscore, and are public
NO_COORDINATOR = frozenset(
    {
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
REBALANCED = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)


def consumer_of(servers: str, group: str, client_id: str, **settings: Any) -> Consumer:
    """Return a consumer of a group, without automatic commits."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range",  # the same partitions of each topic
            "fetch.message.max.bytes": 10_000_000,
            **settings,
        }
    )


def record_of(message: Message) -> Record:
    """Return a consumed message."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    headers: Any = message.headers() or ()
    key, value = message.key(), message.value()
    return Record(
        topic=topic, partition=partition, offset=offset, key=_bytes(key), value=_bytes(value), headers=tuple(headers)
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def next_offsets(records: Iterable[Record]) -> list[TopicPartition]:
    """Return where a consumer goes on after these records."""
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        place = record.topic, record.partition
        ends[place] = max(ends.get(place, 0), record.offset + 1)
    return [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]


def commit(consumer: Consumer, records: Iterable[Record]) -> None:
    """Commit records. KafkaException when the coordinator does not respond for `COMMIT_S`."""
    offsets = next_offsets(records)
    deadline = time.monotonic() + COMMIT_S
    while True:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            code = error.args[0].code()
            if code in REBALANCED:
                return
            if code not in NO_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


class Assignment:
    """The partitions of a consumer. New ones are read from `begin` on, when the state for them is complete.

    They are not paused instead: in librdkafka 2.16 a `resume` that meets the start of a partition's fetch makes this
    start "outdated", and the partition is never read again.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._new: list[TopicPartition] = []
        self.gone: set[int] = set()
        """Partitions that were taken away since `take_over`."""

    def subscribe(self, *topics: str) -> None:
        """Join the group."""
        self._consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def new(self) -> set[int]:
        """Return the numbers of the partitions that are not read yet."""
        return {place.partition for place in self._new}

    def begin(self) -> None:
        """Let the records of the new partitions arrive: what belongs to them was restored."""
        new, self._new = self._new, []
        self._consumer.assign(new)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([])
        self._new = list(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.gone |= {place.partition for place in partitions}
        self._new = []
        consumer.unassign()
