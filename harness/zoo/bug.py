"""One bug of the zoo: its plant, what makes it visible, and the anomalies by which a verdict names it.

A bug is searched for by simulated runs. A directed search uses what is known about the bug: `Bug.options` (application,
settings, kinds of faults) and `Bug.steps` (faults in the order that the bug needs, at times drawn from the seed). The
steps name roles and times only, and the plant's code reads none of them, so nothing tells a run that a bug is planted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harrow.faults.schedule import Schedule, ScheduledFault

from ..run_settings import RunSettings, settings_of
from ..simulation import SimulationOptions, plan_seed

ROOM = "harrow.faults.zoo"
Steps = Callable[[random.Random, RunSettings], Sequence[ScheduledFault]]
"""Draws the faults of one directed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One row of the zoo."""

    number: int
    """As in docs/zoo.md."""
    name: str
    """The module in `faults/zoo/`."""
    known_as: str
    """`KIP-101, first case`."""
    seen_as: frozenset[str]
    """Anomalies that name the bug: the trial has found it when a run has one of them."""
    options: SimulationOptions
    """Application, settings and kinds of faults of a directed search; `plants` stays empty here."""
    steps: Steps | None = None
    """Faults of a directed search; None: those that `options` draws."""

    @property
    def module(self) -> str:
        """The plant's full name."""
        return f"{ROOM}.{self.name}"


def plan_directed(bug: Bug, seed: int) -> Schedule:
    """Draw one run of a directed search, with the bug planted."""
    schedule = plan_seed(seed, replace(bug.options, plants=(bug.module,)))
    if bug.steps is None:
        return schedule
    steps = sorted(drawn_steps(bug, seed, schedule), key=lambda step: step.at_ms)
    return replace(schedule, steps=tuple(steps))


def drawn_steps(bug: Bug, seed: int, schedule: Schedule) -> Sequence[ScheduledFault]:
    """Draw the faults of a directed run on the cluster of `schedule`, in the order in which the bug has them."""
    assert bug.steps is not None
    rng = random.Random(f"{seed}/{bug.name}")  # noqa: S311 - not cryptography
    return bug.steps(rng, settings_of(schedule))


def unplanted(schedule: Schedule) -> Schedule:
    """The same run on brokers without a planted bug."""
    return replace(schedule, run={**schedule.run, "plants": []})
