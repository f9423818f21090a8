"""Schedules: faults one after another, random faults, JSON (K9)."""

from __future__ import annotations

import hashlib
import itertools
import json

import pytest
from harrow.cluster.errors import ConfigError
from harrow.faults import Schedule, kill, leader, one, pause, random_schedule, slow_link
from harrow.faults.planning import ALL_RANDOM, check_faults, in_turn
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 2**63 - 1), st.floats(0.1, 60), st.booleans())
def test_random_schedules_are_drawn_from_the_seed_alone_and_survive_json(
    seed: int, duration_s: float, swarm: bool
) -> None:
    made = random_schedule(seed, duration_s=duration_s, topics=["orders"], groups=["g"], swarm=swarm)
    assert made == random_schedule(seed, duration_s=duration_s, topics=["orders"], groups=["g"], swarm=swarm)
    assert Schedule.from_json(made.to_json()) == made
    assert made.steps[0].required
    assert len({step.id for step in made.steps}) == len(made.steps)


def test_swarm_draws_a_subset_of_the_kinds() -> None:
    kinds = {frozenset(s.fault.kind for s in random_schedule(n, duration_s=60).steps) for n in range(40)}
    assert frozenset({"kill"}) in kinds
    assert frozenset({"kill", "pause", "isolate"}) in kinds


def test_every_kind_can_be_drawn_and_survives_json() -> None:
    made = [random_schedule(n, ALL_RANDOM, 20, topics=["orders"]) for n in range(20)]
    assert {step.fault.kind for schedule in made for step in schedule.steps} == set(ALL_RANDOM)
    assert [Schedule.from_json(schedule.to_json()) for schedule in made] == made


def test_new_kinds_of_fault_change_no_schedule_that_was_drawn_before() -> None:
    drawn = (
        random_schedule(n, duration_s=5, topics=["orders"], cap=1 + n % 2).to_json().replace(' "run": {},\n', "")
        for n in range(40)
    )
    digest = hashlib.sha256("".join(drawn).encode()).hexdigest()
    assert digest == "40160fd862d1fea841067f8a565c18adf1c4abd300846e9210c216f6f67ec75c"


def test_with_room_for_more_than_one_random_faults_overlap() -> None:
    alone = random_schedule(3, duration_s=20, cap=1)
    together = random_schedule(3, duration_s=20, cap=2)
    assert {step.trigger for step in alone.steps} == {"healed"}
    assert {step.trigger for step in together.steps} == {"traffic"}
    starts = [step.at_ms for step in together.steps]
    assert starts == sorted(starts)
    assert all(later - earlier <= 1200 for earlier, later in itertools.pairwise(starts))
    assert starts[-1] >= 20_000


def test_in_turn_each_planned_fault_is_required_once() -> None:
    made = in_turn([kill(one), pause(one)], seed=1)
    assert [step.fault.kind for step in made.steps] == ["kill", "pause"]
    assert all(step.required for step in made.steps)
    longer = in_turn([kill(one), pause(one)], seed=1, duration_s=10, first_id=4)
    assert [step.id for step in longer.steps[:2]] == ["4", "5"]
    assert len(longer.steps) > 4
    assert [step.required for step in longer.steps[:3]] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not a schedule"),
        ("[]", "schema_version None"),
        ('{"schema_version": 99}', "schema_version 99"),
        (json.dumps({"schema_version": 1, "steps": [{"id": "1"}]}), "no fault"),
        (json.dumps({"schema_version": 1, "steps": [{"trigger": "later", "fault": {}}]}), "trigger 'later'"),
    ],
)
def test_malformed_schedule_file_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Schedule.from_json(text)


def test_a_schedule_file_with_a_former_name_is_refused_with_the_present_name() -> None:
    text = in_turn([slow_link(one)], seed=1).to_json().replace('"slow_link"', '"slow"')
    with pytest.raises(ConfigError, match="no fault 'slow'; it is now called 'slow_link'"):
        Schedule.from_json(text)


def test_value_that_is_no_fault_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write kill\(…\)"):
        check_faults([kill])
    with pytest.raises(ConfigError, match="is not a fault"):
        check_faults([leader("orders")])
    with pytest.raises(ConfigError, match="fault 'kil'"):
        random_schedule(1, faults=["kil"])
    with pytest.raises(ConfigError, match="expected a fault and a time"):
        random_schedule(1, duration_s=0)
