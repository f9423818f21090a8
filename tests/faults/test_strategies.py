"""Faults and schedules as strategies of Hypothesis: what is drawn is valid, and shrinks (K9)."""

from __future__ import annotations

from dataclasses import replace

import harrow
import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults import Fault, Schedule, kill, leader
from harrow.faults.planning import ALL_RANDOM
from harrow.faults.request_faults import RequestFault
from harrow.faults.target_checks import check_targets
from harrow.harness.topics import Topic
from harrow.strategies import faults, schedules
from hypothesis import find, given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

NODES = (1, 2, 3)
COPIED = PartitionView(leader=1, leader_epoch=0, isr=NODES, replicas=NODES)
VIEW = ClusterView(topics={"orders": {0: COPIED, 1: COPIED}, "single": {0: replace(COPIED, isr=(1,), replicas=(1,))}})
TOPICS = [Topic(name="orders", partitions=2, replication_factor=3), Topic(name="single")]
EVERY = faults(kinds=ALL_RANDOM, topics=TOPICS, groups=["billing"], seconds=(0.2, 4))


@given(fault=EVERY)
def test_each_drawn_fault_has_targets_that_the_cluster_has(fault: Fault) -> None:
    check_targets([fault], VIEW, NODES)
    assert fault.kind in ALL_RANDOM
    assert isinstance(fault, RequestFault) or 0.2 <= float(str(fault.seconds)) <= 4


@given(fault=faults(kinds=["kill", "pause", "isolate"], topics=["orders"]))
def test_a_drawn_fault_prints_as_the_call_that_makes_it(fault: Fault) -> None:
    names = {name: getattr(harrow, name) for name in harrow.__all__}
    assert eval(pretty(fault), names) == fault


@given(schedule=schedules(kinds=["kill", "pause"], topics=TOPICS, most=4))
def test_a_drawn_schedule_has_at_most_as_many_faults_in_turn(schedule: Schedule) -> None:
    assert 1 <= len(schedule.steps) <= 4
    assert [step.id for step in schedule.steps] == [str(n + 1) for n in range(len(schedule.steps))]
    assert {step.trigger for step in schedule.steps} == {"healed"}
    assert schedule.steps[0].required
    assert Schedule.from_json(schedule.to_json()) == schedule


@given(schedule=schedules(topics=["orders"], cap=2))
def test_faults_of_a_schedule_with_a_higher_cap_have_times_of_their_own(schedule: Schedule) -> None:
    times = [step.at_ms for step in schedule.steps]
    assert times == sorted(times)
    assert {step.trigger for step in schedule.steps} == {"traffic"}


def test_a_schedule_shrinks_to_one_short_fault_of_the_first_kind() -> None:
    found = find(
        schedules(kinds=["kill", "pause", "isolate"], topics=["orders"], seconds=(0.5, 3)),
        lambda schedule: any(step.fault.target.topic == "orders" for step in schedule.steps),
    )
    (step,) = found.steps
    assert step.fault == kill(leader("orders"), seconds=0.5)
    assert (step.at_ms, found.seed) == (0, 0)


@pytest.mark.parametrize("weight", [1, 9])
def test_a_kind_is_drawn_as_often_as_its_weight_says(weight: int) -> None:
    drawn: list[str] = []

    @given(st.lists(faults(kinds={"kill": 1, "pause": weight}), min_size=10, max_size=10))
    def draw(found: list[Fault]) -> None:
        drawn.extend(fault.kind for fault in found)

    draw()
    assert set(drawn) == {"kill", "pause"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"kinds": ["kil"]}, "did you mean 'kill'"),
        ({"kinds": []}, "expected at least one kind"),
        ({"seconds": (3, 1)}, "least, most"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        faults(**arguments)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - wrong on purpose


def test_a_schedule_without_faults_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 1 up"):
        schedules(most=0)
