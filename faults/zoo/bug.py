"""`Bug`: what a module of the zoo says about its bug, and how the bug is searched for.

A directed search uses what is known about a bug: `Bug.options` (application, settings, kinds of faults) and `Bug.steps`
(faults in the order that the bug needs, at times drawn from the seed). The steps of `InOrder` wait for events and not
for times, so that they do the same on real processes. Steps name roles and times only, and the plant's code reads none
of them, so that nothing in a run depends on whether its bug is planted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..runs import SimulationOptions
from ..schedule import ScheduledFault

Steps = Callable[[random.Random], Sequence[ScheduledFault]]
"""Draws the faults of one directed run."""
NO_FATAL_ERROR: Mapping[str, object] = {"idempotent": False, "guarantee": "no-loss", "in_flight": 5}
"""On real processes: a lost record does not end the producer, so that the application goes on."""
SAME_BATCHES: Mapping[str, object] = {"in_flight": 5}
"""On real processes: an idempotent producer sends the same batches again, so that other logs have the same offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """A search by events (`harrow zoo --real`, `--search events`)."""

    options: SimulationOptions
    steps: Steps
    on_processes: Mapping[str, object] = field(default_factory=lambda: NO_FATAL_ERROR)
    """What differs on real processes (fields of `RunSettings`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One row of the zoo."""

    number: int
    """In the project's catalogue (M1)."""
    module: str
    """The plant's full name."""
    title: str
    """`KIP-101, first case: what is wrong`."""
    versions: str
    """Of Apache Kafka that had the bug."""
    needs: str
    """What must happen before the bug has an effect."""
    seen_as: frozenset[str]
    """Anomalies that name the bug: the trial has found it when a run has one of them."""
    options: SimulationOptions
    """Application, settings and kinds of faults of a directed search; `plants` stays empty here."""
    steps: Steps | None = None
    """Faults of a directed search; None: those that `options` draws."""
    in_order: InOrder | None = None
    """The search by events; None: the directed search stands in for it."""

    @property
    def name(self) -> str:
        """The last part of the plant's name."""
        return self.module.rpartition(".")[2]

    @property
    def known_as(self) -> str:
        """`KIP-101, first case`."""
        return self.title.partition(": ")[0]
