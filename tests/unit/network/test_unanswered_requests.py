"""Which requests the watch of a listener traces, and when (L4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from harrow.cluster.events.requests import RequestUnanswered
from harrow.cluster.network.unanswered import AGAIN_S, PATIENCE_S, UnansweredWatch
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.waiting_times import group_id, waiting_ms
from raw_kafka import fetch_request, produce_request


class Waiting:
    """A request, as a connection shows it."""

    client_id, correlation_id, invoked_ns, body_at = "app", 7, 5, 0

    def __init__(self, api_key: ApiKey, version: int, entity: Any) -> None:
        self.api_key = int(api_key)
        self.version = version
        self.frame = messages.encode_request(api_key, version, entity)


def fetch(max_wait_ms: int = 500) -> Waiting:
    return Waiting(ApiKey.FETCH, 12, fetch_request("t", 0, 0, 12, max_wait_ms=max_wait_ms))


class Connection:
    """A connection with at most one request."""

    def __init__(self) -> None:
        self.request: Waiting | None = fetch()

    def oldest_unanswered(self) -> Waiting | None:
        return self.request


class Machine:
    """The parts of a host that the watch uses."""

    def __init__(self) -> None:
        self.tasks = self
        self.trace = self
        self.events: list[RequestUnanswered] = []
        self.calls: list[Callable[[], object]] = []

    def call_later(self, delay_ms: float, call: Callable[[], object]) -> Machine:
        assert delay_ms == 1_000
        self.calls.append(call)
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def emit(self, event: RequestUnanswered) -> None:
        self.events.append(event)


class Watched:
    """A watch, and the connection that it looks at."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.connection = Connection()
        machine: Any = self.machine
        self.watch = UnansweredWatch(machine, lambda: [self.connection])
        self.watch.start()

    def look(self, times: int) -> None:
        for _ in range(times):
            (call,) = self.machine.calls
            self.machine.calls.clear()
            call()


LATE = PATIENCE_S + 2
"""Looks after which a fetch that may wait for half a second is late."""


def test_a_request_is_traced_when_it_is_late_and_again_while_it_stays() -> None:
    watched = Watched()
    watched.look(LATE - 1)
    assert watched.machine.events == []
    watched.look(1)
    assert watched.machine.events == [
        RequestUnanswered(
            api="FETCH", client="app", correlation_id=7, invoked_ns=5, timeout_ms=500, looks=LATE, group=None
        )
    ]
    watched.look(AGAIN_S)
    assert [event.looks for event in watched.machine.events] == [LATE, LATE + AGAIN_S]


def test_requests_that_are_answered_are_not_traced() -> None:
    watched = Watched()
    for _ in range(3):
        watched.connection.request = fetch()
        watched.look(LATE - 1)
    watched.connection.request = None
    watched.look(LATE)
    assert watched.machine.events == []


def test_a_watch_that_is_stopped_looks_no_more() -> None:
    watched = Watched()
    watched.watch.stop()
    assert watched.machine.calls == []


def join(version: int = 9) -> Waiting:
    s = messages.schema(ApiKey.JOIN_GROUP, version, "request")
    entity = s.JoinGroupRequest(
        group_id="billing",
        session_timeout=timedelta(seconds=10),
        rebalance_timeout=timedelta(seconds=60),
        member_id="",
        protocol_type="consumer",
        protocols=(),
        group_instance_id=None,
        reason=None,
    )
    return Waiting(ApiKey.JOIN_GROUP, version, entity)


@pytest.mark.parametrize(("request_", "wanted"), [(fetch(250), 250), (join(), 60_000)], ids=["fetch", "join"])
def test_a_request_may_wait_as_long_as_its_own_fields_say(request_: Waiting, wanted: int) -> None:
    assert waiting_ms(request_) == wanted


def test_the_head_of_a_produce_is_enough() -> None:
    produce = Waiting(ApiKey.PRODUCE, 9, produce_request("t", 0, ["x" * 5_000], acks=-1, version=9, timeout_ms=700))
    produce.frame = produce.frame[:64]
    assert waiting_ms(produce) == 700


def test_a_request_that_does_not_decode_may_wait_for_the_default() -> None:
    garbage = join()
    garbage.frame = b"\xff"
    assert waiting_ms(garbage) == 30_000
    assert group_id(garbage) is None


def test_a_join_waits_for_the_members_of_its_group() -> None:
    assert group_id(join()) == "billing"
    assert group_id(fetch()) is None
