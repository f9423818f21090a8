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

from confluent_kafka import Producer, admin
from harrow import Harrow, Topic, WaitTimeoutError
from shop import Order, new_order

Work = Callable[[Any], Any]
DEADLINE_S = 60.0
PACE_S = 0.01
SHARE_GROUPS = {"group.share.heartbeat.interval.ms": 100, "group.share.min.heartbeat.interval.ms": 100}
"""Settings of brokers: a member of a share group has its partitions at once, and not with its next heartbeat (5 s)."""


class CrashError(Exception):
    """The crash of a service, at a moment that the test chooses."""


def orders_while(running: Callable[[], bool], at_least: int = 10, burst: int = 1) -> Iterator[Order]:
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


def begin_at_the_earliest_order(servers: str, group: str) -> None:
    """Let a share group begin at the first order; without it the group gets what comes after its first member."""
    api: Any = admin  # which exports no types
    entry = api.ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=api.AlterConfigOpType.SET)
    resource = api.ConfigResource(api.ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    client = api.AdminClient({"bootstrap.servers": servers})
    client.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


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


def caught_up(harrow: Harrow, group: str, *topics: Topic | str) -> bool:
    """Whether a consumer group has committed every record of the topics."""
    try:
        harrow.await_caught_up(group, *topics, timeout=PACE_S)
    except WaitTimeoutError:
        return False
    return True


class Running:
    """A service in a thread, from `with` to the end of the block: `run(stop)` returns soon after `stop` is set.

    A service that raises CrashError is started again, as a supervisor does. The block raises any other error.
    """

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._run = run
        self.restarts = 0
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
            self.restarts += 1


def run_until_caught_up(harrow: Harrow, service: Callable[..., None], *arguments: Any, group: str) -> None:
    """Run `service(servers, *arguments, stop)` until its group has committed every order, or the service has ended."""
    with Running(partial(service, harrow.bootstrap_servers, *arguments)) as running:
        until(lambda: running.ended or caught_up(harrow, group, "orders"), f"group {group} has committed every order")


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
