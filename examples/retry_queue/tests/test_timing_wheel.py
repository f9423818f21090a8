from __future__ import annotations

import random

import pytest
from retry_queue.timing_wheel import TimingWheel


def test_a_timer_is_found_at_its_due_time_and_not_before() -> None:
    wheel = TimingWheel[str](1_000, tick_ms=10, slots=8)
    wheel.add("bill", 1_075)
    assert wheel.advance(1_074) == []
    assert wheel.advance(1_075) == ["bill"]
    assert len(wheel) == 0


def test_timers_are_found_in_the_order_of_their_due_times() -> None:
    wheel = TimingWheel[str](0, tick_ms=10, slots=8)
    for name, due_ms in {"c": 900, "a": 3, "b": 70, "d": 5_000}.items():
        wheel.add(name, due_ms)
    assert wheel.advance(10_000) == ["a", "b", "c", "d"]


def test_a_due_time_that_has_passed_is_due_at_once() -> None:
    wheel = TimingWheel[str](500, tick_ms=10, slots=8)
    wheel.add("late", 20)
    assert wheel.advance(500) == ["late"]


def test_a_timer_that_is_added_again_has_the_new_due_time() -> None:
    wheel = TimingWheel[str](0, tick_ms=10, slots=8)
    wheel.add("bill", 30)
    wheel.add("bill", 300)
    assert wheel.advance(200) == []
    assert wheel.advance(300) == ["bill"]


def test_a_timer_that_is_removed_is_not_found() -> None:
    wheel = TimingWheel[str](0, tick_ms=10, slots=8)
    wheel.add("bill", 3_000)
    wheel.remove("bill")
    wheel.remove("another")
    assert "bill" not in wheel
    assert wheel.advance(10_000) == []


def test_a_time_before_the_last_one_changes_nothing() -> None:
    wheel = TimingWheel[str](0, tick_ms=10, slots=8)
    wheel.add("bill", 150)
    assert wheel.advance(100) == []
    assert wheel.advance(20) == []
    assert wheel.advance(150) == ["bill"]


@pytest.mark.parametrize("seed", range(60))
def test_the_wheel_finds_what_a_sorted_list_finds(seed: int) -> None:
    rng = random.Random(seed)
    now_ms = rng.choice([0, 7, 1_900_000_000_123])
    wheel = TimingWheel[int](now_ms, tick_ms=rng.choice([1, 10]), slots=rng.choice([2, 3, 8, 64]))
    waiting: dict[int, int] = {}
    for timer in range(300):
        if rng.random() < 0.7:
            due_ms = now_ms + rng.choice([rng.randint(-5, 50), rng.randint(0, 20_000)])
            waiting[timer] = due_ms
            wheel.add(timer, due_ms)
        if waiting and rng.random() < 0.1:
            removed = rng.choice(list(waiting))
            del waiting[removed]
            wheel.remove(removed)
        now_ms += rng.choice([0, 1, 9, 130, 2_500])
        due = [name for name, at_ms in waiting.items() if at_ms <= now_ms]
        found = wheel.advance(now_ms)
        assert sorted(found) == due
        assert [waiting[name] for name in found] == sorted(waiting[name] for name in found)
        for name in due:
            del waiting[name]
        assert len(wheel) == len(waiting)


@pytest.mark.parametrize("given", [{"tick_ms": 0}, {"slots": 1}])
def test_a_wheel_without_ticks_or_slots_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="expected 1 or more, and 2 or more slots"):
        TimingWheel[str](0, **given)
