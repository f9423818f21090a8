"""Groups of confluent-kafka consumers (librdkafka) of both protocols, and their move from one protocol to the other."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from waiting import HANGS_S, until

COOPERATIVE = {
    "protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
    "heartbeat.interval.ms": 500,
}


class Reader:
    """A consumer, and the values that it read."""

    def __init__(self, servers: str, group: str, *, protocol: str = "consumer", **config: Any) -> None:
        self.values: list[bytes] = []
        # A member of the classic protocol learns of a rebalance from a heartbeat. librdkafka's default is 3 s.
        heartbeats = {"heartbeat.interval.ms": 300} if protocol == "classic" else {}
        self.consumer: Any = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                **heartbeats,
                **config,
            }
        )

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    def owned(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment())


class Readers:
    """The members of one group, which are closed at the end of a test."""

    def __init__(self, servers: str, exits: ExitStack) -> None:
        self.servers = servers
        self.group = f"group-{uuid4().hex[:6]}"
        self.members: list[Reader] = []
        self._exits = exits

    def add(self, *topics: str, **config: Any) -> Reader:
        reader = Reader(self.servers, self.group, **config)
        self._exits.callback(reader.consumer.close)
        reader.consumer.subscribe(list(topics))
        self.members.append(reader)
        return reader

    def remove(self, reader: Reader) -> None:
        self.members.remove(reader)
        reader.consumer.close()

    def poll(self) -> None:
        for reader in self.members:
            reader.poll()

    def polled(self, number: int) -> list[int]:
        """What a member owns after a poll."""
        self.poll()
        return self.members[number].owned()

    def await_shares(self, *shares: int, timeout_s: float = HANGS_S) -> None:
        """Poll until the members share the partitions in these numbers."""

        def shared() -> bool:
            self.poll()
            owned = [reader.owned() for reader in self.members]
            everything = [partition for numbers in owned for partition in numbers]
            complete = sorted(everything) == list(range(sum(shares)))
            return complete and sorted(map(len, owned)) == sorted(shares)

        text = f"shares {shares}"
        until(shared, lambda: f"{text}: {[r.owned() for r in self.members]}", timeout_s=timeout_s)

    def await_values(self, values: set[bytes]) -> None:
        """Poll until the members have read all of `values`."""

        def read() -> bool:
            self.poll()
            return values <= {value for reader in self.members for value in reader.values}

        until(read, "every record is read")

    def described(self) -> Any:
        """The group as an administrator sees it."""
        admin: Any = AdminClient({"bootstrap.servers": self.servers})
        return admin.describe_consumer_groups([self.group])[self.group].result(10)


def move_to_the_new_protocol_and_back(
    readers: Readers, topic: str, partitions: int, *, step_s: float = HANGS_S
) -> list[tuple[str, float]]:
    """Replace the member of a cooperative group by one of the consumer protocol, and back; each step within `step_s`.

    A second classic member would end the move: librdkafka's cooperative-sticky then writes user data into the
    assignments, and the coordinator refuses the upgrade, as Kafka's does.

    Returns the steps and how many seconds each took.
    """
    steps: list[tuple[str, float]] = []
    joined: list[Reader] = []

    def step(name: str, kind: str) -> None:
        count = len(readers.members)
        more = partitions % count
        shares = [partitions // count + (number < more) for number in range(count)]
        began = time.monotonic()
        readers.await_shares(*shares, timeout_s=step_s)
        steps.append((name, time.monotonic() - began))
        assert readers.described().type.name == kind, name

    def enter(kind: str, **config: Any) -> None:
        joined.append(readers.add(topic, **config))
        step(f"member {len(joined)} enters ({config.get('protocol', 'consumer')})", kind)

    def leave(number: int, kind: str) -> None:
        readers.remove(joined[number - 1])
        step(f"member {number} leaves", kind)

    enter("CLASSIC", **COOPERATIVE)
    enter("CONSUMER")
    leave(1, "CONSUMER")
    enter("CONSUMER")
    enter("CONSUMER", **COOPERATIVE)
    leave(2, "CONSUMER")
    leave(3, "CLASSIC")
    return steps
