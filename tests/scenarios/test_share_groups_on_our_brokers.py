"""Share groups on Harrow's own brokers under faults, judged from the taps of the brokers (KIP-932, J2, J6).

`tests/conformance/test_share_groups_before_kafka.py` has the same on Apache Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harrow import Harrow, Topic, VerdictError, broker, expire_lock, isolate, kill, leader, pause
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.share_coordinator.values import SharePartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.faults.spec import Fault
from harrow.faults.targets import Target
from harrow.harness.requests.share_member import ACCEPT, REJECT, RELEASE, Delivered
from long_runs import long_run
from raw_kafka import RawKafka
from share_consumers import ShareConsumer
from waiting import until

GROUP, LIMIT = "workers", 3
SETTINGS = {
    "group.share.record.lock.duration.ms": 2_000,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.delivery.count.limit": LIMIT,
    "share.coordinator.state.topic.num.partitions": 3,
}
DESCRIBE_SHARE_GROUP_OFFSETS = 90
pytestmark = pytest.mark.harrow(config=SETTINGS)


def send(harrow: Harrow, orders: Topic, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers})
    for number in numbers:
        producer.produce(orders.name, f"order {number}", partition=number % 2)
    assert producer.flush(60) == 0


def joined(consumer: ShareConsumer) -> None:
    """Wait until a member has both partitions and has fetched them: the group begins at what is written then."""
    until(lambda: (consumer.poll(), len(consumer.assigned))[1] == 2, "an assignment")
    consumer.poll()


class Group:
    """What the brokers say of the share group."""

    def __init__(self, harrow: Harrow, orders: Topic) -> None:
        self._harrow, self._topic = harrow, orders.name

    def _ask(self, ask: Callable[[RawKafka], Any]) -> Any:
        """The response of a broker that serves; None where none does."""
        for address in self._harrow.bootstrap_servers.split(","):
            try:
                with RawKafka(int(address.rpartition(":")[2])) as raw:
                    return ask(raw)
            except OSError:
                continue
        return None

    def _coordinator(self, kind: int, key: str) -> int:
        """The node of a coordinator; 0 while there is none."""

        def ask(raw: RawKafka) -> int:
            (row,) = raw.ask(ApiKey.FIND_COORDINATOR, 6, key_type=kind, coordinator_keys=[key]).coordinators
            return int(row.node_id) if row.error_code is ErrorCode.none else 0

        return self._ask(ask) or 0

    def share_coordinator(self, partition: int) -> int:
        """The node that stores the state of a share-partition."""
        row = until(
            lambda: self._ask(lambda raw: raw.metadata(self._topic, version=12).topics[0]), "the id of the topic"
        )
        key = SharePartition(GROUP, row.topic_id, partition).coordinator_key
        return until(lambda: self._coordinator(2, key), "a share coordinator")

    def lag(self) -> int | None:
        """How many records are neither accepted nor given up; None until both partitions have a start offset."""
        found = [sum(lags) for lags in self._lags().values() if len(lags) == 2 and min(lags) >= 0]
        return max(found, default=None)

    def shown(self) -> str:
        """The lags that each broker knows, for the error of a test."""
        return f"lag 0; the brokers know the lags {self._lags()}"

    def _lags(self) -> dict[str, list[int]]:
        return {address: self._lags_at(address) for address in self._harrow.bootstrap_servers.split(",")}

    def _lags_at(self, address: str) -> list[int]:
        """The lag of each partition, -1 until it has a start offset; none where the broker does not know the group."""
        group = {"group_id": GROUP, "topics": None}
        try:
            with RawKafka(int(address.rpartition(":")[2])) as raw:
                (row,) = raw.ask(DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[group]).groups
        except (OSError, KafkaError):
            return []
        return [int(part.lag) for topic in row.topics for part in topic.partitions]


def leader_of_0(orders: Topic, group: Group) -> Target:
    assert group is not None
    return leader(orders, 0)


def share_coordinator_of_0(orders: Topic, group: Group) -> Target:
    assert orders is not None
    return broker(group.share_coordinator(0))


CASES = [
    (kill, leader_of_0),
    (kill, share_coordinator_of_0),
    (pause, leader_of_0),
    (pause, share_coordinator_of_0),
    (isolate, leader_of_0),
]


@long_run
@pytest.mark.parametrize(("fault", "target"), CASES)
def test_no_fault_is_an_anomaly(
    harrow: Harrow, fault: Callable[..., Fault], target: Callable[[Topic, Group], Target]
) -> None:
    orders = harrow.topic("orders", partitions=2)
    group = Group(harrow, orders)
    workers = [ShareConsumer(harrow.bootstrap_servers, GROUP, "orders", f"w{n}") for n in range(2)]
    number = turn = 0

    def consume() -> bool:
        """Let each worker process what it gets."""
        nonlocal turn
        for worker in workers:
            found = worker.poll()
            turn += 1
            for place, record in enumerate(found):
                released = record.deliveries == 1 and (turn + place) % 3 == 0
                worker.acknowledge([record], RELEASE if released else (ACCEPT, REJECT)[place % 2])
        return True

    for worker in workers:
        until(lambda: (worker.poll(), worker.assigned)[1], "an assignment")  # noqa: B023
    until(lambda: consume() and {tp.partition for worker in workers for tp in worker.assigned} == {0, 1}, "everything")

    def begun() -> bool:
        """Both partitions have a stored start offset; until then a new leader begins at its end, as Kafka's does."""
        nonlocal number
        send(harrow, orders, range(number, number + 2))
        number += 2
        return consume() and group.lag() is not None

    until(begun, group.shown)
    with harrow.chaos(fault(target(orders, group), seconds=1)) as chaos:
        while chaos.running:
            send(harrow, orders, range(number, number + 10))
            number += 10
            consume()
    until(lambda: consume() and group.lag() == 0, group.shown, timeout_s=90)
    for worker in workers:
        worker.__exit__(None, None, None)
    harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by=GROUP)


@long_run
@pytest.mark.parametrize("wrong", [True, False], ids=["releases poison", "rejects poison"])
def test_a_record_that_no_worker_can_process(harrow: Harrow, wrong: bool) -> None:
    orders = harrow.topic("orders", partitions=2)
    with ShareConsumer(harrow.bootstrap_servers, GROUP, "orders") as worker:
        joined(worker)
        send(harrow, orders, range(20))
        deliveries: list[int] = []
        over: set[tuple[object, int]] = set()

        def kind(record: Delivered) -> int:
            if record.value != b"order 7":
                return ACCEPT
            deliveries.append(record.deliveries)
            return RELEASE if wrong else REJECT

        def work() -> bool:
            for record in worker.poll():
                said = kind(record)
                (result,) = worker.acknowledge([record], said)
                assert result.error == 0, result
                over.update([] if said == RELEASE else [(record.tp, record.offset)])
            return len(over) == 20 or (len(over) == 19 and deliveries[-1:] == [LIMIT])

        until(work, "every record")
    if wrong:
        with pytest.raises(VerdictError) as failure:
            harrow.verify(orders, guarantee="at-least-once", consumed_by=GROUP)
        assert failure.value.verdict.anomaly_counts == {"given-up": 1}
        assert deliveries == [1, 2, 3]
    else:
        harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by=GROUP)


@long_run
def test_locks_that_end_early_give_records_to_others(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2)
    with (
        ShareConsumer(harrow.bootstrap_servers, GROUP, "orders", "slow") as slow,
        ShareConsumer(harrow.bootstrap_servers, GROUP, "orders", "quick") as quick,
    ):
        for worker in (slow, quick):
            until(lambda: (worker.poll(), worker.assigned)[1], "an assignment")  # noqa: B023
        group, held = Group(harrow, orders), list[Delivered]()
        begun = 0

        def holds() -> bool:
            nonlocal begun
            send(harrow, orders, range(begun, begun + 2))
            begun += 2
            held[:] = slow.poll()
            return bool(held)

        until(holds, "records of the slow member")
        with harrow.chaos(expire_lock(GROUP)) as chaos:
            while chaos.running:
                quick.acknowledge(quick.poll())
        rows = [json.loads(line) for line in (harrow.folder / "faults.jsonl").read_text().splitlines()]
        effect = next(row for row in rows if row["event"] == "effect")
        assert sum(effect["evidence"]["records"].values()) >= len(held)
        until(lambda: (quick.acknowledge(quick.poll()), group.lag())[1] == 0, "every record")
    harrow.verify(orders, guarantee="at-least-once, at-most-once", consumed_by=GROUP)


# ------------------------------------------------------------------------------- dead letters (KIP-1191)

GROUP_RESOURCE, SET = 32, 0
QUEUE = "errors.deadletterqueue."


def set_queue(harrow: Harrow, **settings: str) -> None:
    """Gives the group a dead-letter queue, and other settings; returns when each broker knows them."""
    given = {f"{QUEUE}topic.name": "dlq.orders", **settings}
    for number, address in enumerate(harrow.bootstrap_servers.split(",")):
        with RawKafka(int(address.rpartition(":")[2])) as raw:
            if not number:
                rows = [(name, SET, value) for name, value in given.items()]
                assert not raw.change_settings(GROUP_RESOURCE, GROUP, *rows).error_code

            def known(raw: RawKafka = raw) -> bool:
                rows = raw.settings(GROUP_RESOURCE, GROUP).configs
                return given.items() <= {row.name: row.value for row in rows}.items()

            until(known, "the settings of the group")


def dead_letters(harrow: Harrow) -> set[tuple[bytes, ...]]:
    """Partition and offset of the records in the queue."""
    reader = Consumer({"bootstrap.servers": harrow.bootstrap_servers, "group.id": "reader"})
    reader.assign([TopicPartition("dlq.orders", 0, 0)])
    found: set[tuple[bytes, ...]] = set()
    until(lambda: reader.get_watermark_offsets(TopicPartition("dlq.orders", 0), timeout=5.0)[1], "a dead letter")
    _, end = reader.get_watermark_offsets(TopicPartition("dlq.orders", 0), timeout=5.0)
    for _ in range(end):
        message = reader.poll(10.0)
        assert message is not None, "the queue has more records"
        said: dict[str, Any] = dict(cast("Any", message.headers()))
        found.add((said["__dlq.errors.partition"], said["__dlq.errors.offset"]))
    reader.close()
    return found


@long_run
def test_dead_letters_are_in_the_queue_although_their_leader_dies(harrow: Harrow) -> None:
    """The only replica of the queue is paused when records are rejected; their leader dies before it is back."""
    orders = harrow.topic("orders", partitions=2)
    harrow.topic("dlq.orders", partitions=1, replication_factor=1, config={f"{QUEUE}group.enable": "true"})
    set_queue(harrow)
    cluster, group = harrow.cluster, Group(harrow, orders)
    queue_leader = cluster.leader("dlq.orders", 0)
    partition, own_leader = next(
        (number, node) for number in (0, 1) if (node := cluster.leader("orders", number)) not in (queue_leader, None)
    )
    assert queue_leader is not None
    assert own_leader is not None
    with ShareConsumer(harrow.bootstrap_servers, GROUP, "orders") as worker:
        joined(worker)
        send(harrow, orders, range(8))
        got: list[Delivered] = []

        def complete() -> bool:
            got.extend(worker.poll())
            return len(got) == 8

        until(complete, "every record")
        cluster.brokers[queue_leader].pause()
        rejected = [record for record in got if record.tp.partition == partition and record.offset % 2]
        stored = (ErrorCode.none, ErrorCode.invalid_record_state)  # the second one where a first response was late
        until(lambda: all(row.error in stored for row in worker.acknowledge(rejected, REJECT)), "both are rejected")
        cluster.brokers[own_leader].kill()
        cluster.brokers[queue_leader].resume()
        cluster.brokers[own_leader].start()
        until(lambda: (worker.acknowledge(worker.poll()), group.lag())[1] == 0, group.shown)
    assert dead_letters(harrow) == {(b"%d" % partition, b"%d" % offset) for offset in (1, 3)}
    harrow.verify(orders, guarantee="at-least-once", consumed_by=GROUP)


def test_a_dead_letter_that_its_queue_cannot_have_is_given_up(harrow: Harrow) -> None:
    """The topic is not enabled as a queue; the limit of the group is another one than the brokers'."""
    orders = harrow.topic("orders", partitions=2)
    harrow.topic("dlq.orders", partitions=1)
    set_queue(harrow, **{"share.delivery.count.limit": "2"})
    with ShareConsumer(harrow.bootstrap_servers, GROUP, "orders") as worker:
        joined(worker)
        send(harrow, orders, range(4))
        group, deliveries = Group(harrow, orders), list[int]()

        def settle() -> bool:
            for record in worker.poll():
                kind = {b"order 1": REJECT, b"order 2": RELEASE}.get(record.value or b"", ACCEPT)
                deliveries.extend([record.deliveries] if kind == RELEASE else [])
                (result,) = worker.acknowledge([record], kind)
                assert result.error == 0, result
            return group.lag() == 0

        until(settle, group.shown)
    assert deliveries == [1, 2]
    with pytest.raises(VerdictError) as failure:
        harrow.verify(orders, guarantee="at-least-once", consumed_by=GROUP)
    assert failure.value.verdict.anomaly_counts == {"given-up": 2}
    assert "the dead-letter queue of the group does not have it" in str(failure.value)
