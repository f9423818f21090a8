"""Reordering by requests in flight, and redelivery after a crash, each with and without its remedy (H6, H7, M3)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer
from harrow import Harrow, Topic, VerdictError, kill, leader, mapped, refuse_request, txn_coordinator
from raw_groups import GROUP_KIND
from raw_kafka import RawKafka
from raw_transactions import coordinator_of
from transactional_clients import TIMEOUT_S, transactional_producer

ORDERS = 16
CRASH_AT = 7
GROUP = "billing"
_crashed: list[object] = []
"""Times of the orders at which a job has crashed already; a process of the job crashes once."""


class CrashError(Exception):
    """The process of the job ends here."""


@pytest.mark.parametrize("idempotent", [False, True], ids=["without", "with"])
def test_several_requests_in_flight_reorder_without_idempotence(harrow: Harrow, idempotent: bool) -> None:
    orders = harrow.topic("orders")
    producer = Producer(
        {
            "bootstrap.servers": harrow.bootstrap_servers,
            "enable.idempotence": idempotent,
            "acks": "all",
            "max.in.flight": 5,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )
    placed: list[int] = []
    refused = refuse_request("Produce", "NOT_ENOUGH_REPLICAS", nth=2, target=leader(orders, 0))
    # three times: a refusal swaps nothing when it meets the last of five requests
    with harrow.chaos(refused, refused, refused) as chaos:
        while chaos.running:
            for number in range(len(placed), len(placed) + 5):
                producer.produce(orders.name, json.dumps({"order": number}), key="Ada")
                placed.append(number)
            assert producer.flush(TIMEOUT_S) == 0
    if idempotent:
        harrow.verify(orders, guarantee="exactly-once, ordered", record_id="order", expected=placed)
        return
    with pytest.raises(VerdictError) as found:
        harrow.verify(orders, guarantee="ordered", record_id="order", expected=placed)
    verdict = found.value.verdict
    assert verdict is not None
    assert verdict.anomaly_names() == {"out-of-order"}, verdict


def bill_of(order: object) -> dict[str, int]:
    """The bill of an order."""
    fields: dict[str, int] = order  # type: ignore[assignment]  # a JSON object
    return {"order": fields["order"], "total": fields["order"] * 3}


Process = Callable[[Consumer, Producer, Message, str], None]
"""Bills one order."""


def bill_then_commit(consumer: Consumer, producer: Producer, message: Message, bills: str) -> None:
    """At least once: the bill is acknowledged, and then the offset is committed."""
    order = json.loads(message.value() or b"")
    producer.begin_transaction()
    producer.produce(bills, json.dumps(bill_of(order)), key=message.key())
    producer.commit_transaction(TIMEOUT_S)
    if order["order"] == CRASH_AT and message.timestamp() not in _crashed:
        _crashed.append(message.timestamp())
        raise CrashError
    consumer.commit(message=message, asynchronous=False)


def bill_in_a_transaction(consumer: Consumer, producer: Producer, message: Message, bills: str) -> None:
    """Exactly once: the bill and the offset are committed together, or not at all."""
    order = json.loads(message.value() or b"")
    producer.begin_transaction()
    producer.produce(bills, json.dumps(bill_of(order)), key=message.key())
    if order["order"] == CRASH_AT and message.timestamp() not in _crashed:
        producer.flush(TIMEOUT_S)
        _crashed.append(message.timestamp())
        raise CrashError
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
    )
    _commit(producer)


def _commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def run_job(
    harrow: Harrow, orders: Topic, bills: Topic, process: Process, until: Callable[[], int], *, group: str = ""
) -> None:
    """Run one process of the job until as many orders as `until()` says were processed by its group."""
    producer = transactional_producer(harrow.bootstrap_servers, f"biller-{orders.name}")
    producer.init_transactions(TIMEOUT_S)
    settings = {
        "bootstrap.servers": harrow.bootstrap_servers,
        "group.id": group or f"{GROUP}-{orders.name}",
        "log_level": 0,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([orders.name])
        done = -1
        while done + 1 < until():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            process(consumer, producer, message, bills.name)
            done = json.loads(message.value() or b"")["order"]


def place_orders(harrow: Harrow, orders: Topic, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(orders.name, json.dumps({"order": number}), key="Ada")
    assert producer.flush(TIMEOUT_S) == 0


def crash_and_restart(harrow: Harrow, process: Process) -> tuple[Topic, Topic]:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    place_orders(harrow, orders, 0, ORDERS)
    with pytest.raises(CrashError):
        run_job(harrow, orders, bills, process, lambda: ORDERS)
    run_job(harrow, orders, bills, process, lambda: ORDERS)
    return orders, bills


def test_a_crash_between_bill_and_commit_bills_an_order_again(harrow: Harrow) -> None:
    orders, bills = crash_and_restart(harrow, bill_then_commit)
    relation = mapped(bill_of)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order", relation=relation)
    with pytest.raises(VerdictError) as found:
        harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=relation)
    verdict = found.value.verdict
    assert verdict is not None
    assert verdict.anomaly_names() == {"duplicate-output"}, verdict
    assert f'"order": {CRASH_AT}' in str(verdict)


def test_a_bill_in_the_transaction_of_its_offset_is_written_once(harrow: Harrow) -> None:
    orders, bills = crash_and_restart(harrow, bill_in_a_transaction)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
    harrow.verify(orders, bills, guarantee="exactly-once")


def group_elsewhere(raw: RawKafka, *nodes: int | None) -> str:
    """The name of a group whose coordinator is none of `nodes`, which are killed.

    librdkafka waits for a dead coordinator of a group in `send_offsets_to_transaction` without an end
    (examples/librdkafka_5511).
    """
    names = (f"{GROUP}-{number}" for number in range(100))
    return next(name for name in names if coordinator_of(raw, name, GROUP_KIND) not in nodes)


def test_a_job_with_transactions_bills_once_while_its_coordinator_is_killed(harrow: Harrow) -> None:
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    place_orders(harrow, orders, 0, 5)
    placed, pace = [5], threading.Event()
    writer = harrow.cluster.leader(bills.name, 0)
    with RawKafka(harrow.cluster.brokers[1].port) as raw:
        coordinator = coordinator_of(raw, f"biller-{orders.name}")
        group = group_elsewhere(raw, coordinator, writer)

    def place_more() -> None:
        """A shop of its own: the job waits while its coordinator is dead, and each fault must meet traffic."""
        while chaos.running:
            place_orders(harrow, orders, placed[0], 1)
            placed[0] += 1
            pace.wait(0.05)

    faults = [kill(txn_coordinator(f"biller-{orders.name}"), seconds=2)]
    if writer != coordinator:
        faults.append(kill(leader(bills), seconds=2))
    with harrow.chaos(*faults) as chaos:
        shop = threading.Thread(target=place_more)
        shop.start()
        run_job(harrow, orders, bills, bill_without_crash, lambda: placed[0] + shop.is_alive(), group=group)
        shop.join(TIMEOUT_S)
    harrow.verify_pipeline(orders, bills, guarantee="exactly-once", record_id="order", relation=mapped(bill_of))
    harrow.verify(orders, bills, guarantee="exactly-once")


def bill_without_crash(consumer: Consumer, producer: Producer, message: Message, bills: str) -> None:
    """As `bill_in_a_transaction`."""
    order = json.loads(message.value() or b"")
    while True:
        producer.begin_transaction()
        producer.produce(bills, json.dumps(bill_of(order)), key=message.key())
        try:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
            )
            _commit(producer)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(TIMEOUT_S)
        else:
            return
