"""Compares the timing wheel with a sorted list (E1)."""

from __future__ import annotations

from harrow.cluster.purgatory import TimerEntry, TimingWheel
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

WheelAction = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20_000)),
        st.tuples(st.just("advance"), st.integers(0, 700)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("expiry"), st.just(0)),
    ),
    max_size=60,
)


@examples(50, 150)
@given(STEPS, st.integers(0, 10_000), st.sampled_from([2, 4, 64]))
def test_random_actions_return_the_same_entries_as_a_sorted_list(steps: list[WheelAction], now: int, size: int) -> None:
    wheel = TimingWheel(now, wheel_size=size)
    waiting: list[TimerEntry] = []
    for action, number in steps:
        if action == "add":
            entry = TimerEntry(now + number)
            kept = wheel.add(entry)
            assert kept is (number > 0)
            if kept:
                waiting.append(entry)
        elif action == "cancel" and waiting:
            waiting.pop(number % len(waiting)).cancel()
        elif action == "advance":
            now += number
            due = wheel.advance(now)
            expected = {id(entry) for entry in waiting if entry.deadline_ms <= now}
            assert {id(entry) for entry in due} == expected
            assert len(due) == len(expected)
            waiting = [entry for entry in waiting if entry.deadline_ms > now]
        first = min((entry.deadline_ms for entry in waiting), default=None)
        expiry = wheel.next_expiry_ms()
        if first is None:
            assert expiry is None
        else:
            assert expiry is not None
            assert now < expiry <= first


@examples(20, 60)
@given(st.lists(st.integers(1, 500_000), max_size=40))
def test_advancing_to_each_bucket_expiry_returns_every_entry_at_its_deadline(delays: list[int]) -> None:
    wheel = TimingWheel(0, wheel_size=8)
    for delay in delays:
        assert wheel.add(TimerEntry(delay))
    turns = 0
    returned: list[int] = []
    while (expiry := wheel.next_expiry_ms()) is not None:
        turns += 1
        due = [entry.deadline_ms for entry in wheel.advance(expiry)]
        assert due == [expiry] * len(due)
        returned += due
    assert returned == sorted(delays)
    assert turns <= len(delays) * 8  # at most one expiry for each level that an entry moves through


def test_the_example_in_the_modules_docstring_expires_as_described() -> None:
    wheel = TimingWheel(0, wheel_size=4)
    for deadline_ms in (2, 6, 20):
        assert wheel.add(TimerEntry(deadline_ms))
    seen: list[tuple[int, list[int]]] = []
    while (expiry := wheel.next_expiry_ms()) is not None:
        seen.append((expiry, [entry.deadline_ms for entry in wheel.advance(expiry)]))
    assert seen == [(2, [2]), (4, []), (6, [6]), (16, []), (20, [20])]


def test_a_wheel_with_a_coarse_tick_returns_an_entry_in_the_tick_of_its_deadline() -> None:
    wheel = TimingWheel(5, tick_ms=10, wheel_size=4)
    assert not wheel.add(TimerEntry(9))
    entry = TimerEntry(25)
    assert wheel.add(entry)
    assert wheel.advance(19) == []
    assert wheel.advance(20) == [entry]


def test_cancelling_an_entry_twice_removes_it_and_raises_nothing() -> None:
    wheel = TimingWheel(0)
    entry = TimerEntry(50)
    assert wheel.add(entry)
    assert entry.scheduled
    entry.cancel()
    entry.cancel()
    assert not entry.scheduled
    assert wheel.next_expiry_ms() is None
    assert wheel.advance(100) == []
