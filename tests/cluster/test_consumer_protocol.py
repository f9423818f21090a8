"""confluent-kafka (librdkafka) in groups of both protocols, unmodified, against our brokers (G1, G2, G3)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from textwrap import dedent
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from harrow import Harrow
from harrow.cluster.internal_topics import OFFSETS, partition_for
from waiting import until

SETTINGS = {
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 4000,
}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS)
PARTITIONS = 6


class Reader:
    """A consumer, and the values that it read."""

    def __init__(
        self, servers: str, group: str, *, protocol: str = "consumer", **config: Any
    ) -> None:
        self.values: list[bytes] = []
        self.consumer: Any = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
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

    def __init__(self, harrow: Harrow, exits: ExitStack) -> None:
        self.harrow = harrow
        self.group = f"group-{uuid4().hex[:6]}"
        self.members: list[Reader] = []
        self._exits = exits

    def add(self, *topics: str, **config: Any) -> Reader:
        reader = Reader(self.harrow.bootstrap_servers, self.group, **config)
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

    def await_shares(self, *shares: int) -> None:
        """Poll until the members share the partitions in these numbers."""

        def shared() -> bool:
            self.poll()
            owned = [reader.owned() for reader in self.members]
            everything = [partition for numbers in owned for partition in numbers]
            complete = sorted(everything) == list(range(sum(shares)))
            return complete and sorted(map(len, owned)) == sorted(shares)

        until(shared, lambda: f"shares {shares}: {[r.owned() for r in self.members]}")

    def await_values(self, values: set[bytes]) -> None:
        """Poll until the members have read all of `values`."""

        def read() -> bool:
            self.poll()
            return values <= {value for reader in self.members for value in reader.values}

        until(read, "every record is read")


@pytest.fixture
def readers(harrow: Harrow) -> Iterator[Readers]:
    with ExitStack() as exits:
        yield Readers(harrow, exits)


def produce(harrow: Harrow, topic: str, prefix: str, count: int = 60) -> set[bytes]:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    values = {f"{prefix}-{number}".encode() for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def described(readers: Readers) -> Any:
    admin: Any = AdminClient({"bootstrap.servers": readers.harrow.bootstrap_servers})
    return admin.describe_consumer_groups([readers.group])[readers.group].result(10)


def test_members_share_the_partitions_as_they_come_and_leave(readers: Readers) -> None:
    topic = readers.harrow.topic("orders", partitions=PARTITIONS).name
    values = produce(readers.harrow, topic, "first")
    readers.add(topic)
    readers.await_shares(6)
    readers.await_values(values)
    readers.add(topic)
    readers.await_shares(3, 3)
    third = readers.add(topic)
    readers.await_shares(2, 2, 2)
    group = described(readers)
    assert (group.type.name, len(group.members)) == ("CONSUMER", 3)
    readers.remove(third)
    readers.await_shares(3, 3)
    readers.await_values(produce(readers.harrow, topic, "second"))
    committed = readers.members[0].consumer.commit(asynchronous=False)
    assert committed
    assert all(tp.error is None for tp in committed)


def test_static_member_returns_to_its_partitions(readers: Readers) -> None:
    topic = readers.harrow.topic("orders", partitions=PARTITIONS).name
    produce(readers.harrow, topic, "value")
    readers.add(topic)
    static = readers.add(topic, **{"group.instance.id": "one"})
    readers.await_shares(3, 3)
    owned = static.owned()
    readers.remove(static)
    again = readers.add(topic, **{"group.instance.id": "one"})
    readers.await_shares(3, 3)
    assert again.owned() == owned


def test_regular_expression_finds_a_topic_that_is_created_later(readers: Readers) -> None:
    first = readers.harrow.topic("bills-a", partitions=PARTITIONS).name
    readers.add("^bills-[ab].*")
    readers.await_values(produce(readers.harrow, first, "a"))
    second = readers.harrow.topic("bills-b", partitions=PARTITIONS).name
    readers.await_values(produce(readers.harrow, second, "b"))


MEMBER = dedent(
    """
    import sys
    from confluent_kafka import Consumer
    servers, group, topic = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    while True:
        consumer.poll(0.05)
    """
)


def test_partitions_of_a_killed_member_go_to_the_others(readers: Readers) -> None:
    topic = readers.harrow.topic("orders", partitions=PARTITIONS).name
    servers = readers.harrow.bootstrap_servers
    arguments = [sys.executable, "-c", MEMBER, servers, readers.group, topic]
    with subprocess.Popen(arguments) as member:
        readers.add(topic)
        until(lambda: len(readers.polled(0)) == 3, "two members share the partitions")
        member.send_signal(signal.SIGKILL)
    readers.await_shares(6)
    readers.await_values(produce(readers.harrow, topic, "after"))


def test_group_survives_its_coordinator_in_the_middle_of_a_rebalance(readers: Readers) -> None:
    harrow = readers.harrow
    orders = harrow.topic("orders", partitions=PARTITIONS)
    values = produce(harrow, orders.name, "before")
    readers.add(orders.name)
    readers.await_values(values)
    home = partition_for(readers.group, SETTINGS["offsets.topic.num.partitions"])
    node = until(lambda: harrow.cluster.leader(OFFSETS.name, home), "a coordinator")
    readers.add(orders.name)
    harrow.cluster.brokers[node].kill()
    readers.await_shares(3, 3)
    harrow.cluster.brokers[node].start()
    readers.await_values(produce(harrow, orders.name, "after"))
    assert described(readers).state.name == "STABLE"
    harrow.verify(orders, guarantee="no-loss")


def test_classic_and_new_members_share_one_group(readers: Readers) -> None:
    """A rolling change to the new protocol and back: the group changes its type, and the offsets stay."""
    topic = readers.harrow.topic("orders", partitions=PARTITIONS).name
    values = produce(readers.harrow, topic, "value")
    classic = readers.add(topic, protocol="classic")
    readers.await_values(values)
    classic.consumer.commit(asynchronous=False)
    new = readers.add(topic)
    readers.await_shares(3, 3)
    assert described(readers).type.name == "CONSUMER"
    readers.remove(classic)
    readers.await_shares(6)
    back = readers.add(topic, protocol="classic")
    readers.await_shares(3, 3)
    readers.remove(new)
    readers.await_shares(6)
    assert described(readers).type.name == "CLASSIC"
    more = produce(readers.harrow, topic, "more")
    readers.await_values(more)
    assert not set(back.values) & values, "committed offsets stay"


def test_cooperative_members_keep_partitions_while_their_coordinator_is_killed(
    readers: Readers,
) -> None:
    """The classic protocol with incremental assignments (KIP-429): a rebalance takes away only what moves."""
    harrow = readers.harrow
    orders = harrow.topic("orders", partitions=PARTITIONS)
    config = {"protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
    first = readers.add(orders.name, **config)
    readers.await_shares(6)
    home = partition_for(readers.group, SETTINGS["offsets.topic.num.partitions"])
    node = until(lambda: harrow.cluster.leader(OFFSETS.name, home), "a coordinator")
    second = readers.add(orders.name, **config)
    harrow.cluster.brokers[node].kill()
    least = 6

    def shared() -> bool:
        nonlocal least
        readers.poll()
        least = min(least, len(first.owned()))
        return (len(first.owned()), len(second.owned())) == (3, 3)

    until(shared, "both share the partitions")
    harrow.cluster.brokers[node].start()
    assert least >= 3, "the first member never gives up what it keeps"
    readers.await_values(produce(harrow, orders.name, "after"))


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_static_member_of_the_classic_protocol_returns_to_its_partitions(
    readers: Readers, assignor: str
) -> None:
    topic = readers.harrow.topic("orders", partitions=PARTITIONS).name
    config = {"protocol": "classic", "partition.assignment.strategy": assignor}
    stays = readers.add(topic, **config, **{"group.instance.id": "stays"})
    static = readers.add(topic, **config, **{"group.instance.id": "restarts"})
    readers.await_shares(3, 3)
    kept, owned = stays.owned(), static.owned()
    readers.members.remove(static)
    static.consumer.close()  # a static member does not leave
    again = readers.add(topic, **config, **{"group.instance.id": "restarts"})
    readers.await_shares(3, 3)
    assert (stays.owned(), again.owned()) == (kept, owned)
