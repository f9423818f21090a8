"""A search that learns from what its runs reached: schedules that reached something new are kept and mutated.

    fresh      a part of the runs are those of the random search, in the same order: the search is never much worse
    corpus     each run that reached a feature which no run before had reached
    energy     how often a kept run is a parent: the sum of the rarities of its features (a feature that few runs reach
               counts more; AFLFast, Böhme et al., CCS 2016), for each unit of what the run costs, less after each use
    strike     most children are the parent with one or two more faults, aimed at events of its trace; of several drawn
               pairs of event and fault the search takes the one that it has tried least often
    mutation   the others change what the parent has (`mutations.py`)

A run is mutated only with faults and settings that were drawn for runs of its kind (`kind_of_run`): a correct cluster
that does not flush loses records with its power, and a correct broker forgets batches when it restarts.

Deterministic: the same first seed, the same plan and the same results give the same proposals. Costs are counted in
turns of the simulated loop, and not in seconds. The idea is Mallory's (Meng et al., CCS 2023), without its Q-learning:
a simulation can return to the state of a moment, which on real processes has to be learned.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harrow.faults.schedule import Schedule
from harrow.faults.spec import Fault

from ..run_settings import settings_of
from ..simulation import SimulationResult
from .coverage import Moment
from .mutations import MUTATIONS, Parent, aimed, drawn_target, strike

FRESH_FIRST = 6
"""Runs before the first mutation."""
FRESH_PART = 0.25
STRIKE_PART = 0.8
SECOND_STRIKE_PART = 0.4
"""How many children have a second strike, beside the first."""
AIMED_PART = 0.6
"""How many strikes hit a role of the event's partition, and not the role that was drawn with the fault."""
CANDIDATES = 12
"""Pairs of event and fault, of which the search takes the least tried one."""
SHORTEN_PART = 0.7
PLANNED_AHEAD = 60
"""Seeds that are planned, and not run, for the faults that they have."""
CORPUS_MOST = 200
RunKind = tuple[object, ...]


def kind_of_run(schedule: Schedule) -> RunKind:
    """Return what must be equal where a run takes faults and settings of another."""
    settings = settings_of(schedule)
    flush = settings.config.get("log.flush.interval.messages")
    return settings.workload, settings.resends, flush, settings.unclean_sink, settings.acks


@dataclass(slots=True)
class Entry:
    """A kept run."""

    parent: Parent
    features: frozenset[str]
    cost: float
    kind: RunKind
    labels: dict[str, list[Moment]]
    """Its moments by label."""
    used: int = 0


@dataclass(slots=True)
class GuidedSearch:
    """The search; see the module's head. `plan`: the pool of random runs, by seed."""

    first_seed: int
    plan: Callable[[int], Schedule]
    features: Counter[str] = field(default_factory=Counter[str])
    """Which features were reached, and by how many runs."""
    wants_coverage: bool = True
    _rng: random.Random = field(init=False)
    _fresh: int = 0
    _runs: int = 0
    _corpus: list[Entry] = field(default_factory=list[Entry])
    _labels: Counter[str] = field(default_factory=Counter[str])
    """In how many runs there was a moment with this label."""
    _tried: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often a fault struck at an event, by kind of fault and label."""
    _faults: dict[RunKind, list[Fault]] = field(default_factory=dict[RunKind, list[Fault]])

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.first_seed}/guided")  # noqa: S311 - not cryptography

    def propose(self) -> Schedule:
        """Return the next run: a fresh one, or a child of a kept one."""
        fresh = self._runs < FRESH_FIRST or self._rng.random() < FRESH_PART
        if fresh or not self._corpus:
            self._fresh += 1
            return self.plan(self.first_seed + self._fresh - 1)
        return self._child(self._choose_entry())

    def learn(self, result: SimulationResult) -> None:
        """Count what the run reached, and keep it when something was new."""
        self._runs += 1
        coverage = result.coverage
        if coverage is None:
            raise ValueError("a guided search needs results with coverage (keep_coverage=True)")
        new = [feature for feature in coverage.features if feature not in self.features]
        self.features.update(coverage.features)
        labels: dict[str, list[Moment]] = {}
        for moment in coverage.moments:
            labels.setdefault(moment.label, []).append(moment)
        self._labels.update(labels.keys())
        if new and labels:
            parent = Parent(result.schedule, coverage.moments)
            cost = max(1.0, result.turns / 1_000)
            kind = kind_of_run(result.schedule)
            self._corpus.append(Entry(parent, coverage.features, cost, kind, labels))
            if len(self._corpus) > CORPUS_MOST:
                self._corpus.remove(min(self._corpus, key=self._energy))

    # ----------------------------------------------------------------------------------- choices

    def _energy(self, entry: Entry) -> float:
        counts = self.features
        rarity = sum(1.0 / counts[feature] ** 2 for feature in sorted(entry.features))
        return rarity / entry.cost / (1 + entry.used)

    def _choose_entry(self) -> Entry:
        entry = self._rng.choices(self._corpus, [self._energy(one) for one in self._corpus])[0]
        entry.used += 1
        return entry

    def _child(self, entry: Entry) -> Schedule:
        rng = self._rng
        if rng.random() < STRIKE_PART:
            child = self._strike(entry.parent, entry, shorten=rng.random() < SHORTEN_PART)
            if rng.random() < SECOND_STRIKE_PART:
                child = self._strike(Parent(child, entry.parent.moments), entry, shorten=False)
            return child
        others = [other for other in self._corpus if other.kind == entry.kind]
        return rng.choice(MUTATIONS)(entry.parent, rng.choice(others).parent, rng)

    def _strike(self, parent: Parent, entry: Entry, *, shorten: bool) -> Schedule:
        """Add the least tried of some drawn strikes."""
        rng = self._rng
        labels = sorted(entry.labels)
        weights = [1.0 / self._labels[label] for label in labels]
        faults = self._faults_of(entry.kind)
        pairs = list(zip(rng.choices(labels, weights, k=CANDIDATES), rng.choices(faults, k=CANDIDATES), strict=True))
        label, fault = min(pairs, key=lambda pair: self._tried[pair[1].kind, pair[0]])
        self._tried[fault.kind, label] += 1
        moment = rng.choice(entry.labels[label])
        if rng.random() < AIMED_PART:
            fault = aimed(fault, drawn_target(rng, moment, settings_of(parent.schedule)))
        return strike(parent, moment, fault, rng, shorten=shorten)

    def _faults_of(self, kind: RunKind) -> list[Fault]:
        """Return faults that were drawn for runs of this kind."""
        if kind not in self._faults:
            for seed in range(self.first_seed, self.first_seed + PLANNED_AHEAD):
                schedule = self.plan(seed)
                found = self._faults.setdefault(kind_of_run(schedule), [])
                found += [step.fault for step in schedule.steps]
        return self._faults[kind]
