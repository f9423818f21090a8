"""A Kafka Streams application of both protocols under faults: exactly-once is valid, at-least-once doubles bills (L5).

`tests/programs/streams` has a repartition topic and a state store; with `group.protocol=streams` (KIP-1071) the brokers
create its topics and assign its tasks. It is built by `python tests/support/programs_in_other_languages.py streams`,
which downloads Kafka Streams; else the tests are skipped.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from harrow import Harrow, Record, kill, kill_program, leader, pause_program, terminate_program
from harrow.faults import Fault
from harrow.faults.targets import group_coordinator
from harrow.harness.errors import VerdictError
from harrow.harness.programs.user_program import Program
from programs_in_other_languages import NotBuiltError, built
from waiting import until

SETTINGS = {
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.min.heartbeat.interval.ms": 500,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.session.timeout.ms": 6_000,
    "group.streams.initial.rebalance.delay.ms": 500,
    "group.min.session.timeout.ms": 6_000,
}
pytestmark = [
    pytest.mark.harrow(brokers=3, config=SETTINGS),
    pytest.mark.xdist_group("kafka streams"),
]
CUSTOMERS, PARTITIONS = 7, 3
ALL_BILLS_S = 180
_numbers = itertools.count(1)


def order_of(record: Record) -> str:
    """The order of an input, or of a bill, which has the number of the bill behind it."""
    assert record.value is not None
    return "/".join(record.value.decode().split("/")[:2])


class Application:
    """Instances of the application on their topics."""

    def __init__(self, harrow: Harrow, folder: Path, protocol: str, guarantee: str, instances: int = 2) -> None:
        try:
            command = built("streams")
        except NotBuiltError as error:
            pytest.skip(str(error))
        self.harrow = harrow
        self.group = f"billing{next(_numbers)}"
        self.orders = harrow.topic(f"orders-of-{self.group}", partitions=PARTITIONS)
        self.bills = harrow.topic(f"bills-of-{self.group}", partitions=PARTITIONS)
        self.between = f"{self.group}-by-customer-repartition"
        self.placed = 0
        words = ["{bootstrap}", self.group, self.orders.name, self.bills.name, protocol, guarantee, str(folder)]
        self.instances: list[Program] = [
            harrow.program(f"{self.group}-{place}", [*command, *words, f"one{place}"]) for place in range(instances)
        ]

    @contextmanager
    def orders_come(self) -> Generator[None]:
        """Place orders until the block ends."""
        stop = threading.Event()

        def place() -> None:
            producer = Producer({"bootstrap.servers": self.harrow.bootstrap_servers, "enable.idempotence": True})
            while not stop.wait(0.02):
                producer.produce(self.orders.name, f"c{self.placed % CUSTOMERS}/{self.placed}", key=str(self.placed))
                self.placed += 1
                producer.poll(0)
            assert producer.flush(60) == 0

        thread = threading.Thread(target=place)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(90)

    def under(self, *faults: Fault) -> None:
        """Let the application work while orders come and the faults happen, until it has billed every order."""
        with self.orders_come():
            self.harrow.await_records(self.bills, 50, timeout=ALL_BILLS_S)
            with self.harrow.chaos(*faults) as chaos:
                until(lambda: not chaos.running, "the faults are healed", timeout_s=120)
        until(lambda: len(self.numbers()) == self.placed, "every order is billed", timeout_s=ALL_BILLS_S)
        for program in self.instances:
            program.stop(30)

    def numbers(self) -> dict[str, list[int]]:
        """Order -> the numbers of its bills in committed transactions."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.harrow.bootstrap_servers,
                "group.id": f"reader{next(_numbers)}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: dict[str, list[int]] = defaultdict(list)
        ended: set[int] = set()
        consumer.subscribe([self.bills.name])
        try:
            while len(ended) < PARTITIONS:
                message = consumer.poll(30)
                assert message is not None, "no end of the bills in 30 s"
                if message.error():
                    ended.add(message.partition() or 0)
                    continue
                order, number = (message.value() or b"").decode().rsplit("/", 1)
                found[order].append(int(number))
        finally:
            consumer.close()
        return found


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_exactly_once_is_valid_under_faults_of_brokers_and_instances(
    harrow: Harrow, tmp_path: Path, protocol: str
) -> None:
    application = Application(harrow, tmp_path, protocol, "exactly_once_v2")
    first, second = (program.name for program in application.instances)
    application.under(
        kill(leader(application.bills, 0), seconds=2),
        kill(group_coordinator(application.group), seconds=2),
        pause_program(first, seconds=9),
        terminate_program(second),
        kill_program(first),
    )
    # an order is done once it is in the repartition topic, so that there are two pipelines
    for source, sink in itertools.pairwise((application.orders.name, application.between, application.bills.name)):
        assert harrow.verify_pipeline(source, sink, guarantee="exactly-once", record_id=order_of).valid
    of_customer: dict[str, list[int]] = defaultdict(list)
    for order, numbers in application.numbers().items():
        of_customer[order.partition("/")[0]] += numbers
    for customer, numbers in of_customer.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), f"the state of {customer} lost or doubled orders"


def test_at_least_once_doubles_bills_and_is_invalid_under_exactly_once(harrow: Harrow, tmp_path: Path) -> None:
    application = Application(harrow, tmp_path, "streams", "at_least_once", instances=1)
    (name,) = (program.name for program in application.instances)
    application.under(kill_program(name, before="OffsetCommit", nth=2))
    with pytest.raises(VerdictError) as failed:
        harrow.verify_pipeline(application.orders, application.bills, guarantee="exactly-once", record_id=order_of)
    assert "duplicate-output" in failed.value.verdict.anomaly_names(), str(failed.value.verdict)
