"""Mutations of a guided search return valid schedules, and keep what happened before the first change (K9)."""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.faults.runs import EXACTLY_ONCE, ORDERS
from harrow.faults.schedule import Schedule
from harrow.faults.targets import Target
from harrow.harness.run_settings import settings_of
from harrow.harness.search.mutations import (
    MUTATIONS,
    STEPS_MOST,
    Mutation,
    Parent,
    aimed,
    assembled,
    keep_until,
    shortened,
)
from harrow.harness.simulation import SimulationOptions, plan_seed
from harrow.harness.simulation.coverage import Moment
from harrow.harness.zoo.swarm import plan_swarm
from hypothesis import given
from hypothesis import strategies as st

seeds = st.integers(0, 10_000)
moments = st.lists(
    st.builds(
        Moment,
        st.integers(0, 9_000),
        st.sampled_from(["sLi2x", "+kill:L", "tOngoing"]),
        st.sampled_from([None, 1, 5]),
        st.sampled_from(["orders", "bills", "__transaction_state"]),
        st.integers(0, 1),
    ),
    max_size=5,
)


def resolved(schedule: Schedule) -> Schedule:
    """The schedule as a run returns it, as if every step had fired at its time."""
    steps = (replace(step, nodes=(1,), details={}, fired_ms=step.at_ms) for step in schedule.steps)
    return replace(schedule, steps=tuple(steps))


def assert_valid(child: Schedule) -> None:
    again = Schedule.from_json(child.to_json())
    assert again.to_json() == child.to_json()
    settings = settings_of(again)
    end_ms = round(settings.seconds * 1_000)
    times = [step.at_ms if step.fired_ms is None else step.fired_ms for step in child.steps]
    assert times == sorted(times)
    assert all(0 <= at_ms < max(end_ms, 1) for at_ms in times)
    assert child.duration_ms == end_ms
    assert len({step.id for step in child.steps}) == len(child.steps) <= STEPS_MOST
    assert all(not step.required and step.trigger == "traffic" for step in child.steps)


@given(seed=seeds, other=seeds, found=moments, mutation=st.sampled_from(MUTATIONS))
def test_every_mutation_returns_a_valid_schedule(
    seed: int, other: int, found: list[Moment], mutation: Mutation
) -> None:
    parent = Parent(resolved(plan_swarm(seed)), tuple(found))
    second = Parent(resolved(plan_swarm(other)), ())
    assert_valid(mutation(parent, second, random.Random(seed)))


def test_mutations_depend_only_on_the_random_numbers_that_they_are_given() -> None:
    parent = Parent(resolved(plan_swarm(7)), (Moment(1_000, "sE3", 2, "orders", 0),))
    other = Parent(resolved(plan_swarm(8)), ())
    for mutation in MUTATIONS:
        first, second = (mutation(parent, other, random.Random(3)) for _ in range(2))
        assert first == second


def test_steps_that_fired_later_are_described_by_roles_again() -> None:
    schedule = resolved(plan_seed(5, SimulationOptions()))
    middle_ms = schedule.steps[2].at_ms
    before, after = keep_until(schedule, middle_ms)
    assert [step.fired_ms for step in before] == [step.at_ms for step in schedule.steps[:2]]
    assert {(step.nodes, step.fired_ms, step.details) for step in after} == {(None, None, None)}
    assert len(before) + len(after) == len(schedule.steps)


def test_a_shortened_run_has_the_same_pace() -> None:
    schedule = plan_seed(5, SimulationOptions())
    settings = settings_of(replace(schedule, run={**schedule.run, **shortened(schedule, 3_000)}))
    assert 3.0 <= settings.seconds < 3.2
    assert abs(settings.seconds / settings.batches - 8.0 / 90) < 1e-9
    assert shortened(schedule, 8_000) == {}


def test_ids_stay_unique_and_times_stay_inside_of_the_run() -> None:
    schedule = plan_seed(5, SimulationOptions())
    step = replace(schedule.steps[0], at_ms=99_000)
    child = assembled(schedule, [step, step, replace(step, at_ms=-5)])
    assert_valid(child)
    assert len(child.steps) == 3


@given(ids=st.lists(st.sampled_from(["", "x", "x.1", "x.2", "x.3", "1"]), max_size=STEPS_MOST))
def test_ids_of_steps_become_unique_whatever_they_are(ids: list[str]) -> None:
    schedule = plan_seed(5, SimulationOptions())
    child = assembled(schedule, [replace(schedule.steps[0], id=name) for name in ids])
    assert len({step.id for step in child.steps}) == len(ids)
    assert "" not in {step.id for step in child.steps}


def test_faults_of_the_registry_and_of_requests_keep_their_target() -> None:
    faults = [step.fault for seed in range(60) for step in plan_swarm(seed).steps]
    target = Target(role="controller")
    for fault in faults:
        kept = fault.target.role in ("registry", "all_brokers")
        assert aimed(fault, target).target == (fault.target if kept else target)
    assert {settings_of(plan_swarm(seed)).workload for seed in range(60)} == {ORDERS, EXACTLY_ONCE}
