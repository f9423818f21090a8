"""What the tests of the gallery need around a service: orders while faults run, crashes, and the end of the work.

Nothing here waits for a time: every wait is for an event and has a deadline, which only ends a test that hangs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from shop import Order, new_order

Work = Callable[[Any], Any]
DEADLINE_S = 60.0
COORDINATOR_MOVES = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a group whose coordinator has just been chosen."""
PACE_S = 0.01


class CrashError(Exception):
    """The crash of a service, at a moment that the test chooses."""


def orders_while(
    running: Callable[[], bool], at_least: int = 10, burst: int = 1
) -> Iterator[Order]:
    """Yield orders while `running()` is true, at least so many: about a hundred times a second `burst` orders."""
    pace = threading.Event()
    for number in itertools.count():
        if number >= at_least and not running():
            return
        if number % burst == 0:
            pace.wait(PACE_S)
        yield new_order(number)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition()` is true; AssertionError after the deadline."""
    deadline, pace = monotonic() + DEADLINE_S, threading.Event()
    while not condition():
        assert monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        pace.wait(PACE_S)


def place(servers: str, orders: Iterable[Order], topic: str = "orders") -> list[Order]:
    """Place orders correctly: the services under test consume them. Return them."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    placed = list(orders)
    for order in placed:
        producer.produce(topic, json.dumps(order), key=str(order["customer"]))
    assert producer.flush(DEADLINE_S) == 0
    return placed


def place_in_transactions(servers: str, batches: Iterable[tuple[Iterable[Order], bool]]) -> None:
    """Place each batch of orders in a transaction, which is committed where its flag is true, else aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "shop"})
    producer.init_transactions(DEADLINE_S)
    for orders, commits in batches:
        producer.begin_transaction()
        for order in orders:
            producer.produce("orders", json.dumps(order), key=str(order["customer"]))
        producer.flush(DEADLINE_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)


def await_members(servers: str, group: str, count: int) -> None:
    """Wait until a group is stable and has so many members."""
    admin: Any = AdminClient({"bootstrap.servers": servers})

    def is_there() -> bool:
        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        return bool(found.state == ConsumerGroupState.STABLE and len(found.members) == count)

    until(is_there, f"group {group} is stable with {count} members")


class Calls:
    """A function of an order, which counts its calls for each order."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self.calls: Counter[int] = Counter()

    def __call__(self, order: Any) -> Any:
        result = self._work(order)
        self.calls[order["order"]] += 1
        return result


def crashing(work: Work, at_order: int) -> Work:
    """Return `work`, which raises CrashError the first time that it is called for order `at_order`."""
    return failing_once(work, CrashError, at_order)


def failing_once(work: Work, error: type[Exception], at_order: int) -> Work:
    """Return `work`, which raises `error` the first time that it is called for order `at_order`."""
    failures = itertools.count()

    def working(order: Any) -> Any:
        if order["order"] == at_order and next(failures) == 0:
            raise error(f"at order {at_order}")
        return work(order)

    return working


class Lag:
    """How many records of a topic a consumer group has not committed yet; all of them while no coordinator says it."""

    def __init__(
        self, servers: str, group: str, topic: str = "orders", partitions: int = 1
    ) -> None:
        self._client = Consumer({"bootstrap.servers": servers, "group.id": group})
        self._places = [TopicPartition(topic, number) for number in range(partitions)]

    def __call__(self) -> int:
        lag = 0
        for place in self._committed():
            low, high = self._client.get_watermark_offsets(place, timeout=DEADLINE_S, cached=False)
            lag += high - max(place.offset, low)
        return lag

    def _committed(self) -> list[TopicPartition]:
        try:
            return self._client.committed(self._places, timeout=DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() not in COORDINATOR_MOVES:
                raise
            return self._places

    def __enter__(self) -> Lag:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


class Running:
    """A service in a thread, from `with` to the end of the block: `run(stop)` returns soon after `stop` is set.

    A service that raises CrashError is started again, as a supervisor does. The block raises any other error.
    """

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._run = run
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="service")

    def __enter__(self) -> Running:
        self._result = self._pool.submit(self._supervise)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()
        self._result.result()

    @property
    def ended(self) -> bool:
        """Whether the service ended by itself."""
        return self._result.done()

    def _supervise(self) -> None:
        while True:
            with contextlib.suppress(CrashError):
                return self._run(self._stop)


def run_until_caught_up(service: Callable[..., None], *arguments: Any, group: str) -> None:
    """Run `service(*arguments, stop)` until its group has committed every order, or the service has ended.

    The first argument is the address of the brokers.
    """
    with Running(partial(service, *arguments)) as running, Lag(arguments[0], group) as lag:
        until(lambda: running.ended or lag() == 0, f"group {group} has committed every order")


class Hang:
    """A function that hangs the first time that it is called for order `at_order`, until `end()`."""

    def __init__(self, at_order: int) -> None:
        self._at_order = at_order
        self._begun, self._over = threading.Event(), threading.Event()

    def __call__(self, order: Order) -> Order:
        if order["order"] == self._at_order and not self._begun.is_set():
            self._begun.set()
            assert self._over.wait(DEADLINE_S), "the test does not end the hang"
        return order

    def await_begin(self) -> None:
        """Wait until the function hangs."""
        assert self._begun.wait(DEADLINE_S), "the function was not called"

    def end(self) -> None:
        """Let the function return."""
        self._over.set()

    def __enter__(self) -> Hang:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
