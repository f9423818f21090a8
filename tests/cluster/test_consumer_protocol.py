"""confluent-kafka (librdkafka) in groups of both protocols, unmodified, against our brokers (G1, G2, G3)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from textwrap import dedent

import pytest
from confluent_kafka import Producer
from group_readers import Readers, move_to_the_new_protocol_and_back
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


@pytest.fixture
def readers(harrow: Harrow) -> Iterator[Readers]:
    with ExitStack() as exits:
        yield Readers(harrow.bootstrap_servers, exits)


def produce(harrow: Harrow, topic: str, prefix: str, count: int = 60) -> set[bytes]:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    values = {f"{prefix}-{number}".encode() for number in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    return values


def test_members_share_the_partitions_as_they_come_and_leave(harrow: Harrow, readers: Readers) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS).name
    values = produce(harrow, topic, "first")
    readers.add(topic)
    readers.await_shares(6)
    readers.await_values(values)
    readers.add(topic)
    readers.await_shares(3, 3)
    third = readers.add(topic)
    readers.await_shares(2, 2, 2)
    group = readers.described()
    assert (group.type.name, len(group.members)) == ("CONSUMER", 3)
    readers.remove(third)
    readers.await_shares(3, 3)
    readers.await_values(produce(harrow, topic, "second"))
    committed = readers.members[0].consumer.commit(asynchronous=False)
    assert committed
    assert all(tp.error is None for tp in committed)


def test_static_member_returns_to_its_partitions(harrow: Harrow, readers: Readers) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS).name
    produce(harrow, topic, "value")
    readers.add(topic)
    static = readers.add(topic, **{"group.instance.id": "one"})
    readers.await_shares(3, 3)
    owned = static.owned()
    readers.remove(static)
    again = readers.add(topic, **{"group.instance.id": "one"})
    readers.await_shares(3, 3)
    assert again.owned() == owned


def test_regular_expression_finds_a_topic_that_is_created_later(harrow: Harrow, readers: Readers) -> None:
    first = harrow.topic("bills-a", partitions=PARTITIONS).name
    readers.add("^bills-[ab].*")
    readers.await_values(produce(harrow, first, "a"))
    second = harrow.topic("bills-b", partitions=PARTITIONS).name
    readers.await_values(produce(harrow, second, "b"))


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


def test_partitions_of_a_killed_member_go_to_the_others(harrow: Harrow, readers: Readers) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS).name
    servers = harrow.bootstrap_servers
    arguments = [sys.executable, "-c", MEMBER, servers, readers.group, topic]
    with subprocess.Popen(arguments) as member:
        readers.add(topic)
        until(lambda: len(readers.polled(0)) == 3, "two members share the partitions")
        member.send_signal(signal.SIGKILL)
    readers.await_shares(6)
    readers.await_values(produce(harrow, topic, "after"))


def test_group_survives_its_coordinator_in_the_middle_of_a_rebalance(harrow: Harrow, readers: Readers) -> None:
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
    assert readers.described().state.name == "STABLE"
    harrow.verify(orders, guarantee="no-loss")


def test_classic_and_new_members_share_one_group(harrow: Harrow, readers: Readers) -> None:
    """A rolling change to the new protocol and back: the group changes its type, and the offsets stay."""
    topic = harrow.topic("orders", partitions=PARTITIONS).name
    values = produce(harrow, topic, "value")
    classic = readers.add(topic, protocol="classic")
    readers.await_values(values)
    classic.consumer.commit(asynchronous=False)
    new = readers.add(topic)
    readers.await_shares(3, 3)
    assert readers.described().type.name == "CONSUMER"
    readers.remove(classic)
    readers.await_shares(6)
    back = readers.add(topic, protocol="classic")
    readers.await_shares(3, 3)
    readers.remove(new)
    readers.await_shares(6)
    assert readers.described().type.name == "CLASSIC"
    more = produce(harrow, topic, "more")
    readers.await_values(more)
    assert not set(back.values) & values, "committed offsets stay"


def test_cooperative_group_moves_to_the_new_protocol_and_back(harrow: Harrow, readers: Readers) -> None:
    orders = harrow.topic("orders", partitions=PARTITIONS)
    move_to_the_new_protocol_and_back(readers, orders.name, PARTITIONS)
    readers.await_values(produce(harrow, orders.name, "after"))


def test_cooperative_members_keep_partitions_while_their_coordinator_is_killed(
    harrow: Harrow, readers: Readers
) -> None:
    """The classic protocol with incremental assignments (KIP-429): a rebalance takes away only what moves."""
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
    harrow: Harrow, readers: Readers, assignor: str
) -> None:
    topic = harrow.topic("orders", partitions=PARTITIONS).name
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
