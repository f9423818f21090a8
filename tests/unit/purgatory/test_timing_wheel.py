"""The timing wheel against a sorted list (E1)."""

from __future__ import annotations

from harrow.cluster.purgatory import TimerEntry, TimingWheel
from hypothesis import given, settings
from hypothesis import strategies as st

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20_000)),
        st.tuples(st.just("advance"), st.integers(0, 700)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("expiry"), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 10_000), st.sampled_from([2, 4, 64]))
def test_it_does_what_a_sorted_list_does(steps: list[Step], now: int, size: int) -> None:
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
            expected = {id(one) for one in waiting if one.deadline_ms <= now}
            assert {id(one) for one in due} == expected
            assert len(due) == len(expected)
            waiting = [one for one in waiting if one.deadline_ms > now]
        first = min((one.deadline_ms for one in waiting), default=None)
        expiry = wheel.next_expiry_ms()
        if first is None:
            assert expiry is None
        else:
            assert expiry is not None
            assert now < expiry <= first


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 500_000), max_size=40))
def test_driven_by_bucket_expiry_alone_every_entry_is_due_at_its_deadline(
    delays: list[int],
) -> None:
    wheel = TimingWheel(0, wheel_size=8)
    for delay in delays:
        assert wheel.add(TimerEntry(delay))
    turns = 0
    while (expiry := wheel.next_expiry_ms()) is not None:
        turns += 1
        assert all(entry.deadline_ms == expiry for entry in wheel.advance(expiry))
    assert turns <= len(delays) * 8  # one for each level that an entry falls through


def test_the_worked_example() -> None:
    wheel = TimingWheel(0, wheel_size=4)
    two, six, twenty = TimerEntry(2), TimerEntry(6), TimerEntry(20)
    assert all(wheel.add(one) for one in (two, six, twenty))
    seen: list[tuple[int, list[int]]] = []
    while (expiry := wheel.next_expiry_ms()) is not None:
        seen.append((expiry, [one.deadline_ms for one in wheel.advance(expiry)]))
    assert seen == [(2, [2]), (4, []), (6, [6]), (16, []), (20, [20])]


def test_a_coarse_tick_is_never_early() -> None:
    wheel = TimingWheel(5, tick_ms=10, wheel_size=4)
    assert not wheel.add(TimerEntry(9))
    entry = TimerEntry(25)
    assert wheel.add(entry)
    assert wheel.advance(19) == []
    assert wheel.advance(20) == [entry]


def test_cancelling_twice_is_no_error_and_frees_the_wheel() -> None:
    wheel = TimingWheel(0)
    entry = TimerEntry(50)
    assert wheel.add(entry)
    assert entry.scheduled
    entry.cancel()
    entry.cancel()
    assert not entry.scheduled
    assert wheel.next_expiry_ms() is None
    assert wheel.advance(100) == []
