"""A search that spends its time where the random search does not, and mutates runs that reached something new.

    kind       kinds of runs have equal parts of the cost, which it learns from its runs: the random search draws kinds
               equally often, so that most of its time goes to the kinds whose runs take long
    choice     of several planned runs of a kind the one is proposed whose settings let faults meet more for what the
               run costs (`density`)
    squeezed   its faults come in a shorter time than the random search gives them
    corpus     each run that reached a feature which no run before had reached is kept
    mutation   for a part of the cost a kept run is changed (`mutations.py`). Which one depends on its energy: the sum
               of the rarities of its features (a feature that few runs reach counts more; AFLFast, Böhme et al., CCS
               2016), for each unit of what the run costs, less after each use

A run is mutated only with faults and settings that were drawn for runs of its kind (`kind_of_run`): a correct cluster
that does not flush loses records with its power, and a correct broker forgets batches when it restarts.

docs/zoo.md has what this gains over the random search, and what was tried and gained nothing.

Deterministic: the same first seed, the same plan and the same results give the same proposals. Costs are counted in
turns of the simulated loop, and not in seconds. That a run is kept for the states which it reached is the idea of
Mallory (Meng et al., CCS 2023).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harrow.faults.schedule import Schedule

from ..run_settings import settings_of
from ..simulation import SimulationResult
from .mutations import MUTATIONS, Parent, assembled, shortened

SQUEEZED = 0.6
"""Part of the time in which a planned run has its faults."""
MUTATED_PART = 0.15
"""Of the cost of the runs of a kind."""
PLANNED_AHEAD = 60
"""How many seeds are planned before the first run, so that there are runs of each kind."""
PLANS_A_RUN = 4
"""How many seeds are planned for each run after that."""
SEEDS_A_RUN = 12
"""More than the seeds that a search plans for each of its runs, when there are ten or more of them."""
COMPARED_MOST = 4
"""Of how many planned runs one is proposed; the others are dropped. With 16, some bugs are found far less often."""
CORPUS_MOST = 200
RunKind = tuple[object, ...]


def kind_of_run(schedule: Schedule) -> RunKind:
    """Return what must be equal where a run takes faults and settings of another."""
    settings = settings_of(schedule)
    return (settings.workload, settings.resends, settings.flushes, settings.unclean_sink, settings.acks)


def density(schedule: Schedule) -> float:
    """Return how much the faults of a planned run meet for what it costs, as the logarithm of a factor.

    Fewer batches a second cost less, followers leave the ISR sooner with a shorter `replica.lag.time.max.ms`, and a
    fault meets more leaders where there are more partitions. The weights are rounded from the finds for each second of
    2,000 runs of eight bugs; docs/zoo.md says what they gain with others.
    """
    settings = settings_of(schedule)
    return (
        -math.log(settings.batches / settings.seconds)
        - 0.4 * math.log(settings.lag_ms)
        + 0.5 * math.log(settings.partitions)
    )


def squeezed(schedule: Schedule) -> Schedule:
    """Return the run with its faults in `SQUEEZED` of their time, and its records at the same pace."""
    steps = [replace(step, at_ms=round(step.at_ms * SQUEEZED)) for step in schedule.steps]
    end_ms = round(settings_of(schedule).seconds * 1_000 * SQUEEZED)
    return assembled(schedule, steps, **shortened(schedule, end_ms))


@dataclass(slots=True)
class Entry:
    """A kept run."""

    parent: Parent
    features: tuple[str, ...]
    """Sorted."""
    cost: float
    used: int = 0


@dataclass(slots=True)
class Kind:
    """What the search has of one kind of runs."""

    waiting: list[Schedule] = field(default_factory=list[Schedule])
    """Planned runs of which the next one is chosen."""
    corpus: list[Entry] = field(default_factory=list[Entry])
    spent: float = 0.0
    """The cost of all runs so far."""
    spent_on_mutated: float = 0.0

    @property
    def mutates(self) -> bool:
        """Whether a kept run is to be mutated next."""
        return bool(self.corpus) and self.spent_on_mutated < MUTATED_PART * self.spent


@dataclass(slots=True)
class GuidedSearch:
    """The search; see the module's head. `plan`: the pool of random runs, by seed."""

    first_seed: int
    plan: Callable[[int], Schedule]
    features: Counter[str] = field(default_factory=Counter[str])
    """Which features were reached, and by how many runs."""
    wants_coverage: bool = True
    _rng: random.Random = field(init=False)
    _planned: int = 0
    _kinds: dict[RunKind, Kind] = field(default_factory=dict[RunKind, Kind])
    _mutated: bool = False
    """Whether the last proposal is a mutated run."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.first_seed}/guided")  # noqa: S311 - not cryptography

    def propose(self) -> Schedule:
        """Return the next run, of the kind that has cost the least so far."""
        for _ in range(PLANS_A_RUN if self._planned else PLANNED_AHEAD):
            self._plan_one()
        kind = min(self._kinds.values(), key=lambda kind: kind.spent)
        most = self._planned + PLANNED_AHEAD
        while not kind.waiting and self._planned < most:
            self._plan_one()
        if not (kind.waiting or kind.corpus):
            kind = next(other for other in self._kinds.values() if other.waiting)
        self._mutated = kind.mutates or not kind.waiting
        return self._mutation(kind) if self._mutated else self._chosen(kind)

    def learn(self, result: SimulationResult) -> None:
        """Count what the proposed run reached, and keep it when something was new."""
        coverage = result.coverage
        if coverage is None:
            raise ValueError("a guided search needs results with coverage (keep_coverage=True)")
        cost = max(1.0, result.turns / 1_000)
        kind = self._kinds[kind_of_run(result.schedule)]
        kind.spent += cost
        kind.spent_on_mutated += cost if self._mutated else 0.0
        assert kind.spent_on_mutated <= kind.spent, f"{kind.spent_on_mutated} of {kind.spent} was spent on mutated runs"
        is_new = any(feature not in self.features for feature in coverage.features)
        self.features.update(coverage.features)
        if is_new:
            parent = Parent(result.schedule, coverage.moments)
            kind.corpus.append(Entry(parent, tuple(sorted(coverage.features)), cost))
            if len(kind.corpus) > CORPUS_MOST:
                kind.corpus.remove(min(kind.corpus, key=self._energy))

    # ----------------------------------------------------------------------------------- choices

    def _plan_one(self) -> None:
        schedule = self.plan(self.first_seed + self._planned)
        self._planned += 1
        self._kinds.setdefault(kind_of_run(schedule), Kind()).waiting.append(schedule)

    def _chosen(self, kind: Kind) -> Schedule:
        compared, kind.waiting = kind.waiting[-COMPARED_MOST:], []
        return squeezed(max(compared, key=density))

    def _mutation(self, kind: Kind) -> Schedule:
        rng = self._rng
        entry = rng.choices(kind.corpus, [self._energy(entry) for entry in kind.corpus])[0]
        entry.used += 1
        mutated = rng.choice(MUTATIONS)(entry.parent, rng.choice(kind.corpus).parent, rng)
        assert kind_of_run(mutated) == kind_of_run(entry.parent.schedule), "a mutation made a run of another kind"
        return mutated

    def _energy(self, entry: Entry) -> float:
        rarity = sum(1.0 / self.features[feature] for feature in entry.features)
        return rarity / entry.cost / (1 + entry.used)
