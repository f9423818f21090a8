"""Waits of a test on real brokers: what they wait for, what errors say, and programs that die meanwhile (J1)."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest
from confluent_kafka import Consumer, Producer
from harrow import Harrow, HarrowError, WaitTimeoutError, kill, leader
from harrow.cluster.errors import ConfigError

QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 500}


class Service:
    """A consumer group's members in a thread: `members` of them, which commit each record."""

    def __init__(self, servers: str, members: int = 1) -> None:
        self._stop = threading.Event()
        settings = {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 2,
            "heartbeat.interval.ms": 200,
        }
        self._threads = [
            threading.Thread(target=self._run, args=({**settings, "client.id": f"billing-{number}"},))
            for number in range(1, members + 1)
        ]

    def _run(self, settings: dict[str, str | int | float | bool]) -> None:
        consumer = Consumer(settings)
        consumer.subscribe(["orders"])
        while not self._stop.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                consumer.commit(message=message, asynchronous=False)
        consumer.close()

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def place(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(count):
        producer.produce(topic, f"order {number}", partition=number % 2)
    assert producer.flush(30) == 0


def place_in_transactions(servers: str, topic: str, commits: bool) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "shop", "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "order", partition=0)
    producer.flush(30)
    (producer.commit_transaction if commits else producer.abort_transaction)(30)


@pytest.mark.harrow(brokers=3, config=QUICK)
def test_a_test_waits_for_its_service_and_learns_what_was_there_instead(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2)
    servers = harrow.bootstrap_servers
    with pytest.raises(WaitTimeoutError, match=r"the cluster has no consumer group 'biling'; it has none"):
        harrow.await_assigned("biling", timeout=0.1)
    with Service(servers, members=2):
        assert harrow.await_assigned("billing", members=2) == 2
        place(servers, "orders", 6)
        assert harrow.await_records(orders, 6) == 6
        harrow.await_caught_up("billing", orders)
        seen = harrow.await_request("OffsetCommit", client="billing-*", count=6)
        assert seen >= 6
        place(servers, "orders", 1)
        assert harrow.await_request("OffsetCommit", client="billing*", count=seen + 1) > seen
        place_in_transactions(servers, "orders", commits=True)
        place_in_transactions(servers, "orders", commits=False)
        harrow.await_caught_up("billing", "orders")
        assert harrow.await_records(orders, 8) == 8, "markers and aborted records do not count"
        with pytest.raises(WaitTimeoutError) as late:
            harrow.await_assigned("billing", members=3, timeout=0.1)
        assert (
            "await_assigned('billing', members=3): not within 0.1 s; group 'billing' is Stable with 2 members: "
            in str(late.value)
        )
        assert "billing-1 owns orders-" in str(late.value)
        with pytest.raises(
            WaitTimeoutError, match=r"no request Heartbeat of a client that matches 'shop\*' arrived; client ids seen"
        ):
            harrow.await_request("Heartbeat", client="shop*", timeout=0.1)
    assert harrow.await_request("LeaveGroup", count=2) == 2
    place(servers, "orders", 3)
    with pytest.raises(WaitTimeoutError) as behind:
        harrow.await_caught_up("billing", orders, timeout=0.1)
    assert "records that group 'billing' has not committed: orders-0: 2, orders-1: 1; group 'billing' is Empty" in str(
        behind.value
    )
    with pytest.raises(WaitTimeoutError, match=r"topic 'orders' has 11 records \(orders-0: 7, orders-1: 4\)"):
        harrow.await_records(orders, 12, timeout=0.1)


@pytest.mark.harrow(brokers=2, config=QUICK)
def test_a_wait_for_a_leader_sees_the_failover_of_a_fault(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2, replication_factor=2)
    first = harrow.await_leader(orders)
    with harrow.chaos(kill(leader(orders, 0), seconds=0.3)):
        place(harrow.bootstrap_servers, "orders", 2)
        second = harrow.await_leader(orders, 0, other_than=first)
    assert {first, second} == {1, 2}
    with pytest.raises(WaitTimeoutError) as late:
        harrow.await_leader(orders, other_than=[1, 2], timeout=0.1)
    assert "await_leader('orders', 0, other_than=[1, 2]): not within 0.1 s; orders-0 is led by broker " in str(
        late.value
    )
    assert "; registered brokers: 1, 2" in str(late.value)


@pytest.mark.harrow(brokers=1, config=QUICK)
def test_a_wait_ends_with_a_dead_program_and_async_tests_wait_beside_their_loop(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2)
    place(harrow.bootstrap_servers, "orders", 1)

    async def test() -> None:
        with pytest.raises(ConfigError, match=r"write await harrow\.aio\.await_records\('orders', 2\)"):
            harrow.await_records(orders, 2)
        waiting = asyncio.create_task(harrow.aio.await_records(orders, 2))
        await asyncio.to_thread(place, harrow.bootstrap_servers, "orders", 1)
        assert await waiting == 2
        assert await harrow.aio.await_leader(orders, 1) == 1
        assert await harrow.aio.await_request("Produce") >= 2
        with pytest.raises(TimeoutError):  # the end of the loop waits for the threads of cancelled waits
            await asyncio.wait_for(harrow.aio.await_caught_up("billing", orders), 0.2)
        with pytest.raises(WaitTimeoutError, match="no consumer group 'billing'"):
            await harrow.aio.await_assigned("billing", timeout=0.1)

    asyncio.run(test())
    harrow.program("prices", [sys.executable, "-c", "print('done')"]).wait(30)
    with pytest.raises(WaitTimeoutError, match=r"programs that have ended: 'prices' \(exit code 0\)"):
        harrow.await_assigned("billing", timeout=0.1)
    dead = "print('no database'); raise SystemExit(3)"
    harrow.program("billing", [sys.executable, "-c", dead])
    with pytest.raises(HarrowError) as died:
        harrow.await_assigned("billing")
    assert not isinstance(died.value, WaitTimeoutError)
    assert "await_assigned('billing') ends: the program 'billing' has ended: exit code 3" in str(died.value)
    assert "no database" in str(died.value)
