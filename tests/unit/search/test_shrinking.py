"""A failing schedule is shrunk to the faults that the failure needs, and printed as Python that means the same (K9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from harrow.faults import (
    Fault,
    Schedule,
    ScheduledFault,
    cut,
    dependency,
    disk_error,
    half_open,
    isolate,
    kill,
    leader,
    one,
    pause,
    reset,
    slow_link,
    throttle,
)
from harrow.faults.events import took_effect
from harrow.faults.planning import ALL_RANDOM, random_schedule
from harrow.faults.schedule import step_after
from harrow.harness.search.pasted import pasted_simulation, pasted_test, schedule_text
from harrow.harness.search.shrinking import DURATION_LEAST_MS, failing_again, shrink, with_roles
from hypothesis import given
from hypothesis import strategies as st


def planned(count: int, nodes: Sequence[int] = (1,), duration_ms: int = 800) -> Schedule:
    steps = (
        ScheduledFault(
            id=str(number), fault=kill(one), nodes=tuple(nodes), duration_ms=duration_ms, fired_ms=100 * number
        )
        for number in range(count)
    )
    return Schedule(steps=tuple(steps), seed=4, cap=3, duration_ms=5_000, run={"partitions": 8})


def ids(schedule: Schedule) -> set[int]:
    return {int(step.id) for step in schedule.steps}


@given(st.integers(1, 24).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_exactly_the_faults_that_a_failure_needs_remain(case: tuple[int, set[int]]) -> None:
    count, needed = case
    tried: list[Schedule] = []

    def trial(candidate: Schedule) -> Schedule | None:
        tried.append(candidate)
        return candidate if needed <= ids(candidate) else None

    shrunk = shrink(planned(count), trial, runs_most=10_000)
    assert ids(shrunk.schedule) == needed
    assert [int(step.id) for step in shrunk.schedule.steps] == sorted(needed), "in their order"
    assert (shrunk.before, shrunk.runs, shrunk.complete) == (count, len(tried), True)


def test_one_of_two_faults_that_each_suffice_remains() -> None:
    shrunk = shrink(planned(9), lambda given: given if ids(given) & {2, 7} else None)
    assert len(shrunk.schedule.steps) == 1
    assert ids(shrunk.schedule) < {2, 7}


def test_a_failure_that_needs_no_fault_is_found_with_one_run() -> None:
    shrunk = shrink(planned(20), lambda given: given)
    assert (shrunk.schedule.steps, shrunk.runs) == ((), 1)


def test_brokers_durations_and_the_run_get_smaller_too() -> None:
    def trial(candidate: Schedule) -> Schedule | None:
        step = candidate.steps[0] if candidate.steps else None
        needed = step is not None and 2 in (step.nodes or ()) and (step.duration_ms or 0) >= 150
        return candidate if needed and candidate.run["partitions"] >= 2 else None

    def smaller(schedule: Schedule) -> list[Schedule]:
        return [replace(schedule, run={"partitions": schedule.run["partitions"] - 1})]

    shrunk = shrink(planned(1, nodes=(1, 2, 3)), trial, smaller_runs=smaller)
    (step,) = shrunk.schedule.steps
    assert (step.nodes, step.duration_ms, shrunk.schedule.run) == ((2,), 200, {"partitions": 2})


def test_faults_alone_are_left_out_where_only_their_number_is_wanted() -> None:
    def smaller(schedule: Schedule) -> list[Schedule]:
        raise AssertionError(schedule)

    shrunk = shrink(
        planned(5, nodes=(1, 2)),
        lambda given: given if 3 in ids(given) else None,
        smaller_runs=smaller,
        faults_only=True,
    )
    assert shrunk.schedule.steps == (planned(5, nodes=(1, 2)).steps[3],)
    assert shrunk.complete


@pytest.mark.parametrize(
    ("runs", "accepted", "ran"),
    [
        ([True, True, False], True, 2),
        ([True, False, True], True, 3),
        ([False, True, False], False, 3),
        ([False, False, True], False, 2),
    ],
)
def test_a_candidate_runs_until_enough_or_too_few_runs_have_failed(runs: list[bool], accepted: bool, ran: int) -> None:
    left = iter(runs)
    trial = failing_again(lambda _: next(left), failures=2, runs=3)
    candidate = planned(2)
    assert trial(candidate) == (candidate if accepted else None)
    assert len(list(left)) == len(runs) - ran


def test_a_schedule_by_roles_keeps_its_events_and_its_times() -> None:
    timed = planned(1).steps[0]
    waiting = step_after(1, kill(leader("orders")), took_effect("0"), wait_ms=70)
    recorded = replace(planned(1), steps=(timed, replace(waiting, nodes=(3,), fired_ms=900)), run={"seed": 1})
    first, second = with_roles(recorded).steps
    assert (first.nodes, first.trigger, first.at_ms) == (None, "traffic", timed.fired_ms)
    assert second == waiting
    assert with_roles(recorded).run == {"seed": 1}


def test_no_fault_becomes_shorter_than_a_proof_of_its_effect() -> None:
    shrunk = shrink(planned(1), lambda given: given if given.steps else None)
    assert shrunk.schedule.steps[0].duration_ms == DURATION_LEAST_MS


def test_the_result_is_a_schedule_of_a_failing_run_when_runs_are_used_up() -> None:
    failed: list[Schedule] = []

    def trial(candidate: Schedule) -> Schedule | None:
        if {1, 2, 3, 20} <= ids(candidate):
            failed.append(candidate)
            return candidate
        return None

    shrunk = shrink(planned(24), trial, runs_most=6)
    assert (shrunk.runs, shrunk.complete) == (6, False)
    assert shrunk.schedule == failed[-1]
    assert len(shrunk.schedule.steps) < 24
    assert "not finished" in shrunk.summary()


def test_a_schedule_keeps_what_was_resolved_in_the_failing_run() -> None:
    """A simulation resolves other values when faults are left out; later candidates begin with these."""
    resolved = replace(planned(1), seed=99)
    shrunk = shrink(planned(4), lambda given: resolved if given.steps else None, runs_most=50)
    assert shrunk.schedule.seed == 99


# ---------------------------------------------------------------------------------------- as Python


def evaluated(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return names


@pytest.mark.parametrize("seed", range(12))
def test_a_pasted_schedule_is_the_schedule(seed: int) -> None:
    drawn = random_schedule(seed, ALL_RANDOM, 12, topics=["orders"], groups=["billing"], cap=2)
    resolved = replace(
        drawn,
        notes={},
        steps=tuple(
            replace(step, nodes=(1, 2), duration_ms=70, details={"mode": "reset"}, fired_ms=9) for step in drawn.steps
        ),
    )
    for schedule in (replace(drawn, notes={}), resolved):
        assert evaluated(schedule_text(schedule))["SCHEDULE"] == schedule


STORE = dependency("store")
OF_A_STORE: tuple[Fault, ...] = (
    isolate(STORE, seconds=2),
    cut(STORE, direction="out", heals_by="reset"),
    slow_link(STORE, delay_ms=(10, 20)),
    throttle(STORE, bytes_per_s=100),
    half_open(STORE),
    reset(STORE),
    kill(STORE),
    pause(STORE, seconds=1),
)


@pytest.mark.parametrize("needed", range(len(OF_A_STORE)))
def test_the_fault_of_a_store_that_a_failure_needs_remains_and_can_be_pasted(needed: int) -> None:
    faults = (pause(leader("orders")), *OF_A_STORE, kill(one))
    steps = tuple(
        ScheduledFault(
            id=str(number),
            fault=fault,
            nodes=() if fault in OF_A_STORE else (1,),
            duration_ms=800,
            details={"dependency": "store"} if fault in OF_A_STORE else {},
        )
        for number, fault in enumerate(faults)
    )
    wanted = OF_A_STORE[needed]

    def trial(candidate: Schedule) -> Schedule | None:
        again = Schedule.from_json(candidate.to_json())
        return again if wanted in [step.fault for step in again.steps] else None

    shrunk = shrink(Schedule(steps=steps, seed=4), trial)
    assert [step.fault for step in shrunk.schedule.steps] == [wanted]
    assert shrunk.schedule.steps[0].duration_ms == DURATION_LEAST_MS
    pasted = schedule_text(with_roles(shrunk.schedule))
    assert "fault_from_json" not in pasted
    assert evaluated(pasted)["SCHEDULE"] == with_roles(shrunk.schedule)


def test_a_fault_without_a_function_of_its_parameters_is_written_by_its_json_form() -> None:
    fault = disk_error("write", target=leader("orders"))
    schedule = Schedule(steps=(ScheduledFault(id="1", fault=fault),))
    text = schedule_text(schedule)
    assert "fault_from_json({" in text
    assert evaluated(text)["SCHEDULE"] == schedule


def test_pasted_tests_are_python_with_what_was_found() -> None:
    schedule = replace(planned(1), steps=(ScheduledFault(id="1", fault=pause(leader("orders"))),))
    test = evaluated(pasted_test("orders", schedule, "lost-write; 5 faults shrunk to 1."))
    assert test["test_orders"].__doc__ == "lost-write; 5 faults shrunk to 1."
    simulated = evaluated(pasted_simulation("lost_write", schedule, "lost-write."))
    assert (simulated["RUN"], simulated["SCHEDULE"]) == ({"partitions": 8}, replace(schedule, run={}))
    assert "reset" not in pasted_test("x", schedule, "")
    assert reset(one) not in [step.fault for step in simulated["SCHEDULE"].steps]
