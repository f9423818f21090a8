"""Mutations: from the schedule of a run that reached something new to one that may reach more.

A simulation is a function of its schedule, and the resolved schedule of a run repeats it. So a fault that is moved to a
moment of that run meets exactly the state that its trace shows: what fires before the moment keeps what was resolved
(`keep_until`), and what comes later is again described by roles (`unresolved`), because the cluster is then another.

Every mutation returns a valid schedule: times from 0 up to the end of the run, in order; ids that are unique; settings
that `simulation/planning.py` draws. All randomness comes from the `Random` that is given.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from harrow.faults.runs import ORDERS, SINK, TOPIC
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.spec import Fault
from harrow.faults.targets import Target, broker, controller, follower, isr_member, leader

from ..run_settings import RunSettings, settings_of
from ..simulation.coverage import Moment

OFFSETS_MS = (-40, -10, 0, 0, 10, 10, 20, 40, 80, 150, 300, 600)
"""When a moved fault strikes, after the event that it is moved to."""
SESSION_PARTS = (0.05, 0.1, 0.4, 0.9, 1.1, 1.3, 2.0, 3.0)
"""Durations, as parts of the session timeout."""
LAG_PARTS = (0.7, 1.3)
"""Durations, as parts of the time after which a follower leaves the ISR."""
STEPS_MOST = 40


@dataclass(frozen=True, slots=True)
class Parent:
    """A run that mutations begin with."""

    schedule: Schedule
    """Resolved."""
    moments: tuple[Moment, ...]


def unresolved(step: ScheduledFault) -> ScheduledFault:
    """Return the step by its role, at the time at which it fired."""
    at_ms = step.at_ms if step.fired_ms is None else step.fired_ms
    return replace(step, at_ms=at_ms, nodes=None, details=None, fired_ms=None)


def by_roles(schedule: Schedule) -> Schedule:
    """Return the schedule without anything that was resolved."""
    return replace(schedule, steps=tuple(map(unresolved, schedule.steps)))


def keep_until(schedule: Schedule, at_ms: int) -> tuple[list[ScheduledFault], list[ScheduledFault]]:
    """Return the steps that fired before `at_ms`, resolved, and the others by their roles."""
    before, after = list[ScheduledFault](), list[ScheduledFault]()
    for step in schedule.steps:
        if step.fired_ms is not None and step.fired_ms < at_ms:
            before.append(step)
        else:
            after.append(unresolved(step))
    return before, after


def assembled(parent: Schedule, steps: Iterable[ScheduledFault], **run: object) -> Schedule:
    """Return `parent` with other steps: in order, within the run, with unique ids; `run`: changed settings."""
    settings: dict[str, Any] = {**parent.run, **run}
    last_ms = round(float(settings["seconds"]) * 1_000) - 1
    ordered = sorted(
        (replace(step, at_ms=min(max(0, step.at_ms), last_ms), required=False) for step in steps),
        key=lambda step: step.at_ms if step.fired_ms is None else step.fired_ms,
    )[:STEPS_MOST]
    used, unique = set[str](), list[ScheduledFault]()
    for step in ordered:
        names = (f"{step.id or 'x'}.{number}" for number in itertools.count(1))
        name = step.id if step.id and step.id not in used else next(n for n in names if n not in used)
        used.add(name)
        unique.append(replace(step, id=name))
    assert len(used) == len(ordered), f"two steps have one id: {[step.id for step in unique]}"
    assert all(0 <= step.at_ms <= last_ms for step in unique), f"a step lies outside of {last_ms} ms: {unique}"
    return replace(parent, steps=tuple(unique), run=settings, duration_ms=last_ms + 1)


# ------------------------------------------------------------------------------------ single steps


def drawn_duration_ms(rng: random.Random, settings: RunSettings) -> int:
    """Draw a duration around the session timeout, or around the time after which a follower leaves the ISR."""
    parts = [settings.session_ms * part for part in SESSION_PARTS]
    parts += [settings.lag_ms * part for part in LAG_PARTS]
    return round(rng.choice(parts))


def drawn_target(rng: random.Random, moment: Moment | None, settings: RunSettings) -> Target:
    """Draw a role: mostly one in the partition of the moment, or the broker whose event it was."""
    topic = TOPIC if moment is None or moment.topic is None else moment.topic
    partition = None if moment is None or moment.topic is None else moment.partition
    if topic.startswith("__"):
        topic, partition = rng.choice((TOPIC, SINK)), None
    if topic == SINK and settings.workload == ORDERS:
        topic = TOPIC
    roles = [leader(topic, partition)] * 3 + [follower(topic, partition)] * 2
    roles += [isr_member(topic, partition), controller()]
    if moment is not None and moment.node is not None:
        roles += [broker(moment.node)] * 2
    return rng.choice(roles)


def aimed(fault: Fault, target: Target) -> Fault:
    """Return the fault on another target; a fault of the registry or of all brokers' requests stays as it is."""
    if fault.target.role in ("registry", "all_brokers"):
        return fault
    return replace(fault, target=target)


def shortened(schedule: Schedule, end_ms: int) -> dict[str, object]:
    """Return the settings of a run that ends at `end_ms`; its batches come at the same pace, so it begins alike."""
    seconds, batches = float(schedule.run["seconds"]), int(schedule.run["batches"])
    kept = max(1, min(batches, -(-end_ms * batches // round(seconds * 1_000))))
    return {"seconds": seconds * kept / batches, "batches": kept} if kept < batches else {}


# --------------------------------------------------------------------------------------- mutations

Mutation = Callable[[Parent, Parent, random.Random], Schedule]
"""Of a parent; another parent gives faults and settings."""


def move_step(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Move a fault to just before or after an event of the parent's run."""
    del other
    steps = parent.schedule.steps
    if not steps or not parent.moments:
        return by_roles(parent.schedule)
    step, moment = rng.choice(steps), rng.choice(parent.moments)
    at_ms = max(0, moment.at_ms + rng.choice(OFFSETS_MS))
    rest = replace(parent.schedule, steps=tuple(row for row in steps if row is not step))
    first_ms = min(at_ms, step.at_ms if step.fired_ms is None else step.fired_ms)
    before, after = keep_until(rest, first_ms)
    moved = replace(unresolved(step), at_ms=at_ms)
    return assembled(parent.schedule, [*before, moved, *after])


def change_duration(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Change how long a fault lasts."""
    del other
    lasts_ms = drawn_duration_ms(rng, settings_of(parent.schedule))
    return _change_step(parent, rng, lambda step: replace(step, duration_ms=lasts_ms))


def change_target(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Let a fault hit another role."""
    del other
    moment = rng.choice(parent.moments) if parent.moments else None
    target = drawn_target(rng, moment, settings_of(parent.schedule))
    return _change_step(parent, rng, lambda step: replace(unresolved(step), fault=aimed(step.fault, target)))


def delete_step(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Leave a fault out."""
    del other
    if len(parent.schedule.steps) < 2:
        return by_roles(parent.schedule)
    gone = rng.choice(parent.schedule.steps)
    before, after = keep_until(parent.schedule, gone.fired_ms or gone.at_ms)
    kept = (step for step in (*before, *after) if step.id != gone.id)
    return assembled(parent.schedule, kept)


def swap_steps(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Let two faults change places in time."""
    del other
    if len(parent.schedule.steps) < 2:
        return by_roles(parent.schedule)
    first, second = rng.sample([unresolved(step) for step in parent.schedule.steps], 2)
    before, after = keep_until(parent.schedule, min(first.at_ms, second.at_ms))
    swapped = [replace(first, at_ms=second.at_ms), replace(second, at_ms=first.at_ms)]
    rest = (step for step in (*before, *after) if step.id not in (first.id, second.id))
    return assembled(parent.schedule, [*rest, *swapped])


def splice(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Go on with the later faults of another parent."""
    if not parent.schedule.steps:
        return by_roles(parent.schedule)
    end_ms = round(float(parent.schedule.run["seconds"]) * 1_000)
    at_ms = rng.randrange(max(1, end_ms))
    before, _ = keep_until(parent.schedule, at_ms)
    later = [unresolved(step) for step in other.schedule.steps]
    return assembled(parent.schedule, [*before, *(row for row in later if row.at_ms >= at_ms)])


def change_world(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """The same faults by their roles, in another world."""
    del other
    return assembled(by_roles(parent.schedule), by_roles(parent.schedule).steps, seed=rng.getrandbits(40))


def change_settings(parent: Parent, other: Parent, rng: random.Random) -> Schedule:
    """Take a setting that was drawn for another parent: of the brokers, or of the producer."""
    schedule = by_roles(parent.schedule)
    mine, theirs = settings_of(schedule), settings_of(other.schedule)
    differing = sorted(name for name, value in theirs.config.items() if mine.config.get(name, value) != value)
    if not differing or rng.random() < 0.2:
        return assembled(schedule, schedule.steps, in_flight=theirs.in_flight)
    name = rng.choice(differing)
    config: dict[str, Any] = {**mine.config, name: theirs.config[name]}
    return assembled(schedule, schedule.steps, config=config)


def _change_step(parent: Parent, rng: random.Random, change: Callable[[ScheduledFault], ScheduledFault]) -> Schedule:
    """Change one step; the steps that fired after it are unresolved."""
    if not parent.schedule.steps:
        return by_roles(parent.schedule)
    step = rng.choice(parent.schedule.steps)
    before, after = keep_until(parent.schedule, step.fired_ms or step.at_ms)
    rest = [row for row in (*before, *after) if row.id != step.id]
    return assembled(parent.schedule, [*rest, change(step)])


MUTATIONS: Final[Sequence[Mutation]] = (
    move_step,
    change_duration,
    change_target,
    delete_step,
    swap_steps,
    splice,
    change_world,
    change_settings,
)
