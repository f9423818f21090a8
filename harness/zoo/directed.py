"""Runs with the faults that a bug needs, and the same runs without the bug.

`plan_directed` has them at times after the first traffic, `plan_in_order` in the order of events: the searches of
`harrow zoo` and of `harrow zoo --real`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug

from ..simulation import plan_seed


def plan_directed(bug: Bug, seed: int) -> Schedule:
    """Draw one run of a directed search, with the bug planted."""
    schedule = plan_seed(seed, replace(bug.options, plants=(bug.module,)))
    if bug.steps is None:
        return schedule
    steps = bug.steps(random_of(bug, seed))
    return replace(schedule, steps=tuple(sorted(steps, key=lambda step: step.at_ms)))


def plan_in_order(bug: Bug, seed: int) -> Schedule:
    """Draw one directed run by events, with the bug planted; by times where the bug has no such schedule."""
    if bug.in_order is None:
        return plan_directed(bug, seed)
    schedule = plan_seed(seed, replace(bug.in_order.options, plants=(bug.module,)))
    return replace(schedule, steps=tuple(bug.in_order.steps(random_of(bug, seed))))


def random_of(bug: Bug, seed: int) -> random.Random:
    """Return what the steps of one run are drawn from."""
    return random.Random(f"{seed}/{bug.name}")  # noqa: S311 - not cryptography


def settings_on_processes(bug: Bug) -> Mapping[str, object]:
    """Return what a run on real processes changes in the settings of the bug's schedules."""
    return {} if bug.in_order is None else bug.in_order.on_processes


def unplanted(schedule: Schedule) -> Schedule:
    """The same run on brokers without a planted bug."""
    return replace(schedule, run={**schedule.run, "plants": []})
