"""What producing applications lose, double, split and swap, beside their correct twins (L5).

The faults are directed: each application goes wrong in every run. `expected=` is what the application believes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from harrow import Harrow, Record, Topic
from harrow.harness.checks import judge
from harrow.harness.errors import VerdictError

ONE_BROKER = pytest.mark.harrow(brokers=1)
QUICK = {"log_level": 0, "linger.ms": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
Outcome = tuple[str, set[str]]
"""Status and anomalies of a verdict."""


class Shop:
    """An application that places orders, each a JSON object with the customer as Kafka's record key."""

    def __init__(self, harrow: Harrow, *, recorded: bool = False, settings: dict[str, Any] | None = None) -> None:
        self.failed: list[int] = []
        servers = {"bootstrap.servers": harrow.bootstrap_servers, "enable.idempotence": True}
        chosen: dict[str, Any] = {**QUICK, **(settings or {})}
        self._producer: Any = harrow.producer(**chosen) if recorded else Producer({**servers, **chosen})

    def place(self, order: int, *, topic: str = "orders", **options: Any) -> int:
        """Send an order; return its id."""

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.failed.append(order)

        customer = f"customer-{order % 3}"
        value = json.dumps({"order": order, "customer": {"name": customer}})
        self._producer.produce(topic, value, key=customer, on_delivery=delivered, **options)
        return order

    def place_all(self, orders: Iterable[int], **options: Any) -> list[int]:
        """Send orders and wait for their delivery reports."""
        placed = [self.place(order, **options) for order in orders]
        self.flush()
        return placed

    def flush(self, timeout: float = 30) -> int:
        """Wait for the delivery reports."""
        waiting: int = self._producer.flush(timeout)
        return waiting


def outcome(verify: Callable[[], Any]) -> Outcome:
    """Status and anomaly names of a verdict, valid or not."""
    try:
        verdict = verify()
    except VerdictError as error:
        verdict = error.verdict
    return verdict.status.value, verdict.anomaly_names()


def invalid(verify: Callable[[], Any]) -> Any:
    """Return the verdict, which is invalid."""
    with pytest.raises(VerdictError) as found:
        verify()
    verdict: Any = found.value.verdict
    assert verdict.status.value == "invalid"
    return verdict


@pytest.fixture
def orders(harrow: Harrow) -> Topic:
    return harrow.topic("orders", partitions=3)


def place_while_the_broker_is_down(harrow: Harrow, orders: Iterable[int]) -> Shop:
    """Place orders with an application whose sends all fail."""
    shop = Shop(harrow, settings={"message.timeout.ms": 300})
    harrow.cluster.brokers[1].kill()
    placed = shop.place_all(orders)
    assert sorted(shop.failed) == placed
    harrow.cluster.brokers[1].start()
    return shop


@ONE_BROKER
def test_ignored_delivery_errors_are_missing_orders(harrow: Harrow, orders: Topic) -> None:
    Shop(harrow).place_all(range(10))
    place_while_the_broker_is_down(harrow, range(10, 17))
    believed = range(17)
    verdict = invalid(lambda: harrow.verify(orders, guarantee="no-loss", record_id="order", expected=believed))
    assert verdict.anomaly_counts == {"missing": 7}
    assert verdict.operation_counts["expected"] == 17
    assert verdict.operation_counts["matched"] == 10
    explained = [anomaly.explanation for anomaly in verdict.anomalies]
    assert explained[0] == "order 10 was believed sent, but is in no partition of orders"
    assert len(explained) == 7
    again = judge(harrow.folder, topics=["orders"], guarantee="no-loss")
    assert again.anomaly_counts == {"missing": 7}, "`harrow check` has no expectation"
    assert harrow.verify(orders, guarantee="no-loss").valid, "without expectation nothing is missing"


@ONE_BROKER
def test_orders_that_are_sent_again_after_a_delivery_error_are_all_there(harrow: Harrow, orders: Topic) -> None:
    shop = Shop(harrow)
    shop.place_all(range(10))
    shop.place_all(place_while_the_broker_is_down(harrow, range(10, 17)).failed)
    verdict = harrow.verify(orders, guarantee="exactly-once, ordered", record_id="order", expected=range(17))
    assert verdict.operation_counts["matched"] == 17


@ONE_BROKER
def test_loss_is_judged_without_guarantee_because_expected_demands_it(harrow: Harrow, orders: Topic) -> None:
    shop = Shop(harrow, settings={"acks": 1, "enable.idempotence": False})
    placed = [*shop.place_all(range(5)), 99]
    verdict = invalid(lambda: harrow.verify(orders, record_id="order", expected=placed))
    assert verdict.guarantees == ("no-loss",)
    assert "expected= says which records must be there" in str(verdict.guarantee_reason)
    at_most_once = harrow.verify(orders, guarantee="at-most-once", record_id="order", expected=placed)
    assert at_most_once.anomaly_counts == {"missing": 1}


def sent_again_when_the_report_is_late(harrow: Harrow, shop: Shop, *, impatient: bool) -> list[int]:
    """Send an order to a paused broker; an impatient application sends it a second time."""
    placed = shop.place_all(range(5))
    harrow.cluster.brokers[1].pause()
    placed.append(shop.place(5))
    assert shop.flush(0.2) == 1, "the report is late"
    if impatient:
        shop.place(5)
    harrow.cluster.brokers[1].resume()
    assert shop.flush() == 0
    return placed


@ONE_BROKER
@pytest.mark.parametrize("impatient", [True, False])
def test_an_own_retry_doubles_an_order(harrow: Harrow, orders: Topic, impatient: bool) -> None:
    placed = sent_again_when_the_report_is_late(harrow, Shop(harrow), impatient=impatient)

    def verify() -> Any:
        return harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)

    if not impatient:
        assert verify().valid
        return
    verdict = invalid(verify)
    assert verdict.anomaly_counts == {"duplicate": 1}
    (anomaly,) = verdict.anomalies
    assert [row["record_id"] for row in anomaly.operations] == ["5", "5"]
    assert anomaly.operations[0]["key"] == "customer-2"
    assert json.loads(anomaly.operations[0]["value"])["order"] == 5
    assert "order 5 was believed sent once, but orders has it 2 times" in anomaly.explanation
    assert outcome(lambda: harrow.verify(orders, guarantee="exactly-once", record_id="order")) == (
        "invalid",
        {"duplicate"},
    )
    assert harrow.verify(orders, guarantee="at-least-once", record_id="order").valid
    assert harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=[*placed, 5]).valid


@ONE_BROKER
@pytest.mark.parametrize("random_partition", [True, False])
def test_a_partition_that_is_not_the_keys_splits_keys(harrow: Harrow, orders: Topic, random_partition: bool) -> None:
    shop = Shop(harrow)
    for order in range(12):
        options: dict[str, Any] = {"partition": order % 2} if random_partition else {}
        shop.place(order, **options)
    shop.flush()
    found = outcome(lambda: harrow.verify(orders, guarantee="exactly-once, ordered"))
    assert found == (("invalid", {"split-key"}) if random_partition else ("valid", set()))
    by_order = outcome(lambda: harrow.verify(orders, guarantee="ordered", order_key="order"))
    assert by_order == ("valid", set()), "each order is a single record"


@ONE_BROKER
@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_two_instances_that_write_the_same_key_swap_its_orders(
    harrow: Harrow, orders: Topic, careful: bool, recorded: bool
) -> None:
    first = Shop(harrow, recorded=recorded, settings={"linger.ms": 60_000})
    second = Shop(harrow, recorded=recorded)
    placed = [first.place(order) for order in (0, 3, 6)]
    if careful:
        first.flush()
    placed += second.place_all([9, 12])
    first.flush()
    known: dict[str, Any] = {} if recorded else {"record_id": "order", "expected": placed}
    found = outcome(lambda: harrow.verify(orders, guarantee="ordered", **known))
    assert found == (("valid", set()) if careful else ("invalid", {"out-of-order"}))
    if not careful and not recorded:
        unordered: dict[str, Any] = {"record_id": "order", "expected": set(placed)}
        assert harrow.verify(orders, guarantee="ordered", **unordered).valid, "a set has no order"


@ONE_BROKER
def test_removed_records_are_not_called_missing(harrow: Harrow, orders: Topic) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    shop = Shop(harrow)
    placed = shop.place_all(range(10), partition=0)
    admin: Any = AdminClient({"bootstrap.servers": harrow.bootstrap_servers})
    for future in admin.delete_records([TopicPartition("orders", 0, 4)]).values():
        future.result(10)
    expected: dict[str, Any] = {"record_id": "order", "expected": placed}
    status, names = outcome(lambda: harrow.verify(orders, guarantee="no-loss", **expected))
    assert (status, names) == ("unknown", set())
    reason = harrow.verdicts[-1].reasons[0]
    assert "4 expected records of 10 cannot be found" in reason
    assert "4 records had been removed" in reason
    assert harrow.verify(orders, guarantee="no-loss", record_id="order", expected=placed[4:]).valid
    lost: dict[str, Any] = {"record_id": "order", "expected": [*placed, 99]}
    assert outcome(lambda: harrow.verify(orders, guarantee="no-loss", **lost)) == ("invalid", {"missing"})
    assert outcome(lambda: harrow.verify(orders, guarantee="exactly-once", record_id="order")) == ("unknown", set())


def name_of_customer(record: Record) -> str:
    """A function of this test module, which Spark's workers cannot import."""
    return str(record["customer"]["name"])


@ONE_BROKER
def test_functions_of_the_user_run_in_sparks_workers(harrow: Harrow, orders: Topic) -> None:
    placed = Shop(harrow).place_all(range(6))
    own = Shop(harrow)
    by_key = harrow.verify(orders, guarantee="ordered", order_key=name_of_customer)
    assert by_key.valid
    by_function = harrow.verify(
        orders,
        guarantee="exactly-once",
        record_id=lambda record: [record["order"], name_of_customer(record)],
        expected=[(order, f"customer-{order % 3}") for order in placed],
    )
    assert by_function.operation_counts["matched"] == 6

    def odd(record: Record) -> object:
        return record["order"] if record["order"] != 4 else record["ordre"]

    assert outcome(lambda: harrow.verify(orders, guarantee="exactly-once", record_id=odd)) == ("unknown", set())
    (reason,) = harrow.verdicts[-1].reasons
    assert "KeyError('ordre')" in reason
    assert '"order": 4' in reason
    assert outcome(lambda: harrow.verify(orders, record_id=lambda _: own))[0] == "unknown"
    assert "create that object inside the function" in harrow.verdicts[-1].reasons[0]
