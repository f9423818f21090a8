from __future__ import annotations

import json

import pytest
from retry_queue.backoff import Policy
from retry_queue.clock import SteadyClock
from retry_queue.errors import PoisonError
from retry_queue.handling import bill_of, output_of
from retry_queue.names import Names
from retry_queue.records import ATTEMPTS, DUE, REASON, Record, decode, encode

ORDER = Record(
    topic="orders",
    partition=2,
    offset=41,
    key=b"Ada",
    value=b'{"order": 7}',
    headers=(("trace", b"\x00\xff"), ("empty", None)),
)


def test_a_failed_input_has_its_key_and_value_unchanged_and_its_place_in_headers() -> None:
    delayed = ORDER.failed("orders-delay", attempts=1, reason="no tax rate", due_ms=1_500)
    assert (delayed.key, delayed.value) == (ORDER.key, ORDER.value)
    assert delayed.origin == ("orders", 2, 41)
    assert (delayed.topic, delayed.partition) == ("orders-delay", 2)
    assert (delayed.attempts, delayed.due_ms, delayed.header(REASON)) == (1, 1_500, "no tax rate")
    assert delayed.headers[:2] == ORDER.headers


def test_a_second_failure_keeps_the_first_place_and_replaces_the_other_headers() -> None:
    first = ORDER.failed("orders-delay", attempts=1, reason="no tax rate", due_ms=1_500)
    moved = first.moved("orders-retry")
    second = moved.failed("orders-dead", attempts=2, reason="x" * 2_000, due_ms=None)
    assert second.origin == ("orders", 2, 41)
    names = [name for name, _ in second.headers]
    assert names.count(ATTEMPTS) == 1 and DUE not in names
    assert second.attempts == 2 and second.header(REASON) == "x" * 500


def test_a_replayed_dead_letter_is_the_input() -> None:
    dead = ORDER.failed("orders-dead", attempts=5, reason="no tax rate", due_ms=1_500)
    again = dead.replayed()
    assert (again.topic, again.key, again.value, again.headers) == ("orders", ORDER.key, ORDER.value, ORDER.headers)
    assert again.attempts == 0


def test_each_wait_has_an_id_of_its_own() -> None:
    waits = {
        ORDER.failed("orders-delay", attempts=attempts, reason="", due_ms=due_ms).id
        for attempts in (0, 1)
        for due_ms in (5, 6)
    }
    assert len(waits) == 4


@pytest.mark.parametrize("key", [None, b"", b"Ada"])
@pytest.mark.parametrize("value", [None, b"", b"\x00" * 3])
def test_a_stored_record_is_read_as_it_was(key: bytes | None, value: bytes | None) -> None:
    record = Record(topic="t", partition=3, key=key, value=value, headers=ORDER.headers)
    assert decode(encode(record)) == record


@pytest.mark.parametrize("end", [1, 5, -1])
def test_a_stored_record_that_is_cut_short_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match="a stored record"):
        decode(encode(ORDER)[:end])


def test_the_wait_doubles_up_to_its_limit() -> None:
    policy = Policy(attempts=9, first_ms=100, most_ms=1_000)
    assert [policy.wait_ms(n) for n in (1, 2, 3, 4, 5, 500)] == [100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.parametrize("given", [{"attempts": 0}, {"first_ms": 0}, {"first_ms": 9, "most_ms": 8}])
def test_a_policy_that_never_ends_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Policy(**given)


def test_the_clock_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before = clock.now_ms()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= clock.now_ms() - before < 60_000


def test_each_topic_takes_what_the_topic_before_it_took() -> None:
    sizes = Names().configurations(1_000)
    delay, store = (int(sizes[name]["max.message.bytes"]) for name in ("orders-delay", "orders-delay-store"))
    assert 1_000 < delay < store
    assert sizes["orders-retry"]["max.message.bytes"] == str(delay)
    assert sizes["orders-delay-store"]["cleanup.policy"] == "compact"


def test_an_order_has_its_bill() -> None:
    assert json.loads(output_of(bill_of, b'{"order": 7, "amount": 100}', 1)) == {"order": 7, "total": 120}


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[1]", b"7"])
def test_what_is_no_json_object_is_poison(value: bytes | None) -> None:
    with pytest.raises(PoisonError):
        output_of(bill_of, value, 1)
