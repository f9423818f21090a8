"""Members of a consumer group that read in threads, with the assignor of a test, while faults disturb the group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from waiting import until


class GroupMember:
    """What one member was assigned, and how often; its thread polls until the block ends."""

    def __init__(self) -> None:
        self.assignments: list[list[int]] = []
        self.owned: set[int] = set()
        self.read: list[int] = []
        """The partitions of the records that it read."""

    def assigned(self, numbers: list[int]) -> None:
        self.assignments.append(numbers)
        self.owned |= set(numbers)

    def revoked(self, numbers: list[int]) -> None:
        self.owned -= set(numbers)


def confluent(servers: str, topic: str, group: str, settings: dict[str, Any]) -> Any:
    def open_member(member: GroupMember) -> tuple[Callable[[], None], Callable[[], None]]:
        consumer: Any = Consumer(
            {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", **settings}
        )

        def assigned(_: object, rows: list[TopicPartition]) -> None:
            member.assigned([row.partition for row in rows])

        def revoked(_: object, rows: list[TopicPartition]) -> None:
            member.revoked([row.partition for row in rows])

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)

        def poll() -> None:
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                member.read.append(message.partition())

        return poll, consumer.close

    return open_member


class _Listener:
    def __init__(self, member: GroupMember) -> None:
        self._member = member

    def on_partitions_assigned(self, rows: Any) -> None:
        self._member.owned = {row.partition for row in rows}
        self._member.assignments.append(sorted(self._member.owned))

    def on_partitions_revoked(self, rows: Any) -> None:
        self._member.revoked([row.partition for row in rows])


def sticky(servers: str, topic: str, group: str, _: dict[str, Any]) -> Any:
    """kafka-python's members, with the sticky assignor, which librdkafka does not have."""

    def open_member(member: GroupMember) -> tuple[Callable[[], None], Callable[[], None]]:
        from kafka.consumer.subscription_state import ConsumerRebalanceListener

        listener: Any = type("Listener", (_Listener, ConsumerRebalanceListener), {})(member)
        consumer: Any = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[StickyPartitionAssignor],
            metadata_max_age_ms=500,
            session_timeout_ms=30_000,
        )
        consumer.subscribe([topic], listener=listener)

        def poll() -> None:
            for place, rows in consumer.poll(1000).items():
                member.read += [place.partition] * len(rows)

        return poll, consumer.close

    return open_member


@contextmanager
def members(open_member: Any, count: int) -> Generator[list[GroupMember]]:
    """Run so many members until the block ends."""
    stop, found = threading.Event(), [GroupMember() for _ in range(count)]

    def run(member: GroupMember) -> None:
        poll, close = open_member(member)
        while not stop.is_set():
            poll()
        close()

    threads = [threading.Thread(target=run, args=(member,)) for member in found]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


@contextmanager
def records(servers: str, topic: str, partitions: int) -> Generator[None]:
    """Produce to all partitions in turn until the block ends."""
    stop = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 1, "client.id": "feed"})
        number = 0
        while not stop.is_set():
            producer.produce(topic, str(number), partition=number % partitions)
            producer.poll(0.005)
            number += 1
        producer.flush(30)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def await_all(found: list[GroupMember], partitions: int, *, each: bool = True) -> None:
    """Wait until the members have all partitions, and (`each`) each member at least one."""
    until(
        lambda: (
            (not each or all(member.owned for member in found))
            and sorted(n for member in found for n in member.owned) == list(range(partitions))
        ),
        lambda: f"all partitions are assigned: {[member.owned for member in found]}",
    )
