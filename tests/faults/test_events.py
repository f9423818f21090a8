"""Steps that wait for events: what has happened, in which order they fire, and what is left of them in a file (K9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_system import FakeSystem
from harrow import faults
from harrow.cluster.errors import ConfigError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults import (
    Event,
    Nemesis,
    Schedule,
    ScheduledFault,
    began,
    healed,
    isr_count,
    kill,
    leader,
    new_leader,
    next_leader,
    pause,
    took_effect,
)
from harrow.faults.bounds import WAIT_TIMEOUT_MS
from harrow.faults.events import Progress
from harrow.faults.schedule import step_after
from harrow.harness.search.pasted import schedule_text
from harrow.harness.search.shrinking import shrink

TICK_MS, LONG_MS = 10, 400_000
EVENTS = [
    began("1"),
    took_effect("1"),
    healed("two"),
    new_leader("orders", 2, "1"),
    new_leader("orders"),
    isr_count("orders", 0, 1),
]


class Run:
    """A nemesis that a test drives; `rows`: what it did, with its time."""

    def __init__(self, system: FakeSystem, *steps: ScheduledFault, **more: Any) -> None:
        self.system = system
        self.rows: list[tuple[int, str, str]] = []
        plan = Schedule(steps=steps, seed=3, cap=3, **more)
        self.now_ms = 1_000
        self.nemesis = Nemesis(system, plan, write=self._write)

    def _write(self, row: dict[str, Any]) -> None:
        self.rows.append((self.now_ms, row["event"], row["id"]))

    def turns(self, until_ms: int = LONG_MS) -> Run:
        while not self.nemesis.over and self.now_ms < until_ms:
            self.nemesis.turn(self.now_ms)
            self.now_ms += TICK_MS
        return self

    def at_ms(self, event: str, step: str) -> int:
        return next(at_ms for at_ms, *row in self.rows if row == [event, step])

    def happened(self, event: str, step: str) -> bool:
        return any(row == [event, step] for _, *row in self.rows)


def step(number: int, fault: Any, *events: Event, **more: Any) -> ScheduledFault:
    """A step that must fire, and that lasts until the end unless `until` says when it ends."""
    return replace(step_after(number, fault, *events, **more), required=True)


def elect(system: FakeSystem, node: int, *isr: int) -> None:
    orders = system.topics["orders"]
    elected = replace(orders[0], leader=node, leader_epoch=orders[0].leader_epoch + 1, isr=isr)
    system.topics = {**system.topics, "orders": {**orders, 0: elected}}  # views that were taken stay as they are


# ------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_an_event_is_the_same_after_json_and_after_its_text(event: Event) -> None:
    assert Event.from_json(event.to_json()) == event
    assert eval(repr(event), {**vars(faults)}) == event


def test_events_of_steps_and_of_partitions_happen_as_they_say() -> None:
    progress = Progress()
    before = ClusterView(topics={"orders": {0: PartitionView(leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2))}})
    none = ClusterView(topics={"orders": {0: PartitionView(leader=-1, leader_epoch=1, isr=(2,), replicas=(1, 2))}})
    after = ClusterView(topics={"orders": {0: PartitionView(leader=2, leader_epoch=2, isr=(2,), replicas=(1, 2))}})
    moved = new_leader("orders", 0, "1")
    assert not any(event.happened(progress, before) for event in (began("1"), took_effect("1"), healed("1"), moved))
    progress.steps |= {("began", "1"), ("took_effect", "1"), ("healed", "1")}
    progress.views["1"] = before
    assert all(event.happened(progress, None) for event in (began("1"), took_effect("1"), healed("1")))
    assert [moved.happened(progress, view) for view in (None, before, none, after)] == [False, False, False, True]
    single = isr_count("orders", 0, 1)
    assert [single.happened(progress, view) for view in (None, before, after)] == [False, False, True]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Event(event="took_efect", step="1"), "did you mean took_effect"),
        (lambda: took_effect(""), "expected the id of a step"),
        (lambda: Event(event="isr_count", count=1), "expected a topic"),
        (lambda: Event.from_json({"event": "healed", "id": "1"}), "no field 'id'; there are event"),
        (lambda: Event.from_json({"step": "1"}), "expected the field event"),
        (
            lambda: ScheduledFault(id="1", fault=kill(1), trigger="traffic", after=(began("2"),)),
            "a step that waits for events has both",
        ),
        (lambda: ScheduledFault(id="1", fault=kill(1), trigger="events"), "has both"),
    ],
)
def test_what_cannot_be_an_event_is_an_error_that_says_what_to_write(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("name", ["3", "2"])
def test_a_step_cannot_wait_for_a_step_that_is_not_there_or_for_itself(name: str) -> None:
    steps = (step(1, kill(1)), step(2, kill(2), took_effect(name)))
    with pytest.raises(ConfigError, match=r"step 2 .* waits for took_effect\('.'\); the other steps are: '1'"):
        Nemesis(FakeSystem(), Schedule(steps=steps))


def test_a_schedule_of_events_is_the_same_after_json_and_pasted_into_a_test() -> None:
    steps = (
        step(1, pause(next_leader("orders", 0)), until=(took_effect("2"), isr_count("orders", 0, 2))),
        step(2, kill(leader("orders", 0)), took_effect("1"), wait_ms=20, overlaps=True),
    )
    schedule = Schedule(steps=steps, seed=4, cap=2)
    assert Schedule.from_json(schedule.to_json()) == schedule
    names: dict[str, Any] = {}
    exec(schedule_text(schedule), names)
    assert names["SCHEDULE"] == schedule


# ------------------------------------------------------------------------------------------- order


def test_a_step_fires_after_the_effect_of_another_which_lasts_until_that_one_is_healed() -> None:
    run = Run(
        FakeSystem(),
        step(1, pause(1), until=(healed("2"),)),
        step(2, kill(2), took_effect("1"), wait_ms=500, duration_ms=1_000),
    ).turns()
    assert run.nemesis.problems == []
    assert run.at_ms("inject", "2") == run.at_ms("effect", "1") + 500
    assert run.at_ms("healed", "2") <= run.at_ms("heal", "1") <= run.at_ms("healed", "2") + TICK_MS


def test_a_step_fires_when_another_broker_leads_than_at_the_effect_of_a_step() -> None:
    system = FakeSystem()
    after = (new_leader("orders", 0, "1"), isr_count("orders", 0, 2))
    run = Run(
        system,
        step(1, kill(leader("orders", 0)), until=(took_effect("2"),)),
        step(2, pause(leader("orders", 0)), *after, duration_ms=0),
    ).turns(until_ms=5_000)
    assert not run.happened("inject", "2")
    elect(system, 2, 2)
    assert not run.turns(until_ms=6_000).happened("inject", "2")
    elect(system, 2, 2, 3)
    run.turns()
    assert run.nemesis.problems == []
    paused = next(s for s in run.nemesis.schedule.steps if s.id == "2")
    assert paused.nodes == (2,)
    assert 6_000 <= run.at_ms("inject", "2") <= 6_000 + TICK_MS


def test_a_fault_heals_after_its_duration_at_the_latest() -> None:
    run = Run(FakeSystem(), step(1, pause(1), until=(isr_count("orders", 0, 1),), duration_ms=700))
    run.turns()
    assert run.at_ms("heal", "1") == run.at_ms("effect", "1") + 700


def test_a_fault_without_a_duration_of_its_own_lasts_until_its_event() -> None:
    first = ScheduledFault(id="1", fault=pause(1), trigger="traffic", until=(healed("2"),))
    run = Run(FakeSystem(), first, step(2, kill(2), took_effect("1"), duration_ms=40_000)).turns()
    assert run.at_ms("healed", "2") > 40_000
    assert run.at_ms("healed", "2") <= run.at_ms("heal", "1") <= run.at_ms("healed", "2") + TICK_MS


def test_a_step_may_hit_a_broker_of_another_step_only_where_it_says_so() -> None:
    def steps(**more: bool) -> tuple[ScheduledFault, ...]:
        first = step(1, pause(1), until=(took_effect("2"),), duration_ms=60_000)
        return first, step(2, faults.reset(1), took_effect("1"), **more)

    apart = Run(FakeSystem(), *steps()).turns()
    assert apart.at_ms("heal", "1") > 60_000
    # a paused broker does not run: nothing but its session can be hit
    expired = step(2, faults.expire_session(1), took_effect("1"), overlaps=True, duration_ms=0)
    together = Run(FakeSystem(), steps()[0], expired).turns()
    assert together.at_ms("effect", "2") <= together.at_ms("heal", "1") < 60_000


def test_a_required_step_whose_events_do_not_happen_is_named_with_them() -> None:
    run = Run(FakeSystem(), step(1, kill(1), duration_ms=0), step(2, kill(2), isr_count("orders", 0, 9))).turns()
    assert run.nemesis.problems == ["kill(broker(2)) never fired: it waited for isr_count('orders', 0, 9)"]
    assert run.now_ms < run.at_ms("healed", "1") + WAIT_TIMEOUT_MS + 100


def test_steps_that_need_not_fire_are_left_out_when_the_schedule_is_over() -> None:
    steps = (
        step_after(1, kill(1), until=(took_effect("3"),), duration_ms=3_000),
        step_after(2, kill(2), isr_count("orders", 0, 9)),
        step_after(3, kill(3), took_effect("2")),
        step_after(4, faults.delay_request("Fetch"), until=(took_effect("2"),)),
    )
    run = Run(FakeSystem(), *steps, duration_ms=2_000).turns()
    assert run.nemesis.problems == []
    assert {step for _, event, step in run.rows if event == "inject"} == {"1", "4"}
    assert run.at_ms("heal", "4") <= 3_000 + 2 * TICK_MS, "it had no effect, and does not wait for one"
    assert run.system.undisturbed()


# ------------------------------------------------------------------------------------------- smaller


def test_without_a_step_others_wait_for_what_that_step_waited_for() -> None:
    steps = (
        step(1, kill(1)),
        step(2, kill(2), took_effect("1"), wait_ms=20, until=(healed("3"), isr_count("orders", 0, 1))),
        step(3, kill(3), took_effect("2"), began("1"), wait_ms=5),
    )
    schedule = Schedule(steps=steps)
    (_, third) = schedule.without({"2"}).steps
    assert (third.after, third.at_ms) == ((took_effect("1"), began("1")), 25)
    (_, second) = schedule.without({"3"}).steps
    assert second.until == (isr_count("orders", 0, 1),)
    (alone,) = schedule.without({"1", "2"}).steps
    assert (alone.after, alone.trigger, alone.at_ms) == ((), "traffic", 25)


def test_shrinking_leaves_out_steps_in_the_middle() -> None:
    steps = (
        step(1, kill(1), until=(took_effect("3"),)),
        step(2, pause(2), took_effect("1")),
        step(3, kill(3), took_effect("2"), until=(healed("2"),)),
    )

    def fails(candidate: Schedule) -> Schedule | None:
        Nemesis(FakeSystem(), candidate)  # ConfigError where a step waits for one that is gone
        kept = {step.id for step in candidate.steps}
        return candidate if {"1", "3"} <= kept else None

    shrunk = shrink(Schedule(steps=steps), fails).schedule
    assert [step.id for step in shrunk.steps] == ["1", "3"]
    assert shrunk.steps[1].after == (took_effect("1"),)
