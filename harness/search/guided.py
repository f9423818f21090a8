"""A search that learns from what its runs reached: schedules that reached something new are kept and mutated.

    fresh      for a part of the cost the runs are those of the random search: the search is never much worse
    corpus     each run that reached a feature which no run before had reached
    kind       kinds of runs have equal parts of the cost, however often they are drawn and however long they take
    energy     how often a kept run is a parent: the sum of the rarities of its features (a feature that few runs reach
               counts more; AFLFast, Böhme et al., CCS 2016), for each unit of what the run costs, less after each use
    strike     most children are the parent with some more faults. The first is aimed at an event of its trace: of
               several drawn pairs of event and fault the search takes the one that it has tried least often. The others
               follow the one before, or are aimed at events, too
    mutation   the others change what the parent has (`mutations.py`)

A run is mutated only with faults and settings that were drawn for runs of its kind (`kind_of_run`): a correct cluster
that does not flush loses records with its power, and a correct broker forgets batches when it restarts.

Deterministic: the same first seed, the same plan and the same results give the same proposals. Costs are counted in
turns of the simulated loop, and not in seconds. The idea is Mallory's (Meng et al., CCS 2023), without its Q-learning:
a simulation can return to any state that a run was in, which on real processes has to be learned.
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
"""Of the cost of all runs."""
STRIKE_PART = 0.8
MORE_STRIKES_PART = 0.75
"""How often a strike is followed by another one."""
STRIKES_MOST = 6
FOLLOW_PART = 0.7
"""How many further strikes follow closely after the one before; the others are aimed at an event of their own."""
FOLLOWS_MS = (20, 60, 150, 400)
FOLLOWS_SESSIONS = (1.05, 1.3, 2.1)
"""When such a strike comes after the one before: before anyone notices it, or when its session has expired."""
AIMED_PART = 0.6
"""How many strikes hit a role of the event's partition, and not the role that was drawn with the fault."""
CANDIDATES = 12
"""Pairs of event and fault, of which the search takes the least tried one."""
SHORTEN_PART = 0.7
PLANNED_AHEAD = 60
"""How many seeds are planned before the first run: their kinds, and the faults that they have."""
CORPUS_MOST = 200
RunKind = tuple[object, ...]


def kind_of_run(schedule: Schedule) -> RunKind:
    """Return what must be equal where a run takes faults and settings of another."""
    settings = settings_of(schedule)
    return (
        settings.workload,
        settings.resends,
        settings.flushes,
        settings.unclean_sink,
        settings.acks,
    )


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
    _planned: int = 0
    _waiting: dict[RunKind, list[Schedule]] = field(default_factory=dict[RunKind, list[Schedule]])
    """Fresh runs that are planned and were not run yet, by kind."""
    _is_fresh: bool = True
    _fresh_cost: float = 0.0
    _spent: dict[RunKind, float] = field(default_factory=dict[RunKind, float])
    """The cost of all runs so far, by kind."""
    _runs: int = 0
    _corpus: list[Entry] = field(default_factory=list[Entry])
    _labels: Counter[str] = field(default_factory=Counter[str])
    """In how many runs there was a moment with this label."""
    _tried: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often a fault struck at an event, by kind of fault and label."""
    _faults: dict[RunKind, list[Fault]] = field(default_factory=dict[RunKind, list[Fault]])
    """Faults that were drawn for runs of each kind."""

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.first_seed}/guided")  # noqa: S311 - not cryptography

    def propose(self) -> Schedule:
        """Return the next run: a fresh one, or a child of a kept one."""
        spent = sum(self._spent.values())
        self._is_fresh = self._runs < FRESH_FIRST or self._fresh_cost < FRESH_PART * spent
        if self._is_fresh or not self._corpus:
            return self._fresh_run()
        return self._child(self._choose_entry())

    def learn(self, result: SimulationResult) -> None:
        """Count what the run reached, and keep it when something was new."""
        self._runs += 1
        coverage = result.coverage
        if coverage is None:
            raise ValueError("a guided search needs results with coverage (keep_coverage=True)")
        cost = max(1.0, result.turns / 1_000)
        kind = kind_of_run(result.schedule)
        self._spent[kind] = self._spent.get(kind, 0.0) + cost
        self._fresh_cost += cost if self._is_fresh else 0.0
        new = [feature for feature in coverage.features if feature not in self.features]
        self.features.update(coverage.features)
        labels: dict[str, list[Moment]] = {}
        for moment in coverage.moments:
            labels.setdefault(moment.label, []).append(moment)
        self._labels.update(labels.keys())
        if new and labels:
            parent = Parent(result.schedule, coverage.moments)
            self._corpus.append(Entry(parent, coverage.features, cost, kind, labels))
            if len(self._corpus) > CORPUS_MOST:
                self._corpus.remove(min(self._corpus, key=self._energy))

    # ----------------------------------------------------------------------------------- choices

    def _energy(self, entry: Entry) -> float:
        counts = self.features
        rarity = sum(1.0 / counts[feature] ** 2 for feature in sorted(entry.features))
        return rarity / entry.cost / (1 + entry.used)

    def _fresh_run(self) -> Schedule:
        """Return the next fresh run of the kind that has cost the least so far."""
        while self._planned < PLANNED_AHEAD:
            self._plan_one()
        kind = min(self._waiting, key=lambda kind: self._spent.get(kind, 0.0))
        most = self._planned + PLANNED_AHEAD
        while not self._waiting[kind] and self._planned < most:
            self._plan_one()
        able = self._waiting[kind] or next(filter(None, self._waiting.values()))
        return able.pop(0)

    def _plan_one(self) -> None:
        schedule = self.plan(self.first_seed + self._planned)
        self._planned += 1
        kind = kind_of_run(schedule)
        self._waiting.setdefault(kind, []).append(schedule)
        self._faults.setdefault(kind, []).extend(step.fault for step in schedule.steps)

    def _choose_entry(self) -> Entry:
        kind = min((entry.kind for entry in self._corpus), key=self._spent.__getitem__)
        able = [entry for entry in self._corpus if entry.kind == kind]
        entry = self._rng.choices(able, [self._energy(entry) for entry in able])[0]
        entry.used += 1
        return entry

    def _child(self, entry: Entry) -> Schedule:
        rng = self._rng
        if rng.random() < STRIKE_PART:
            return self._strikes(entry)
        others = [other for other in self._corpus if other.kind == entry.kind]
        return rng.choice(MUTATIONS)(entry.parent, rng.choice(others).parent, rng)

    def _strikes(self, entry: Entry) -> Schedule:
        """Return the parent with some more faults."""
        rng, faults = self._rng, self._faults[entry.kind]
        label, fault = self._least_tried(entry, faults)
        moment = rng.choice(entry.labels[label])
        shorten = rng.random() < SHORTEN_PART
        struck = strike(
            entry.parent, moment, self._aimed(fault, moment, entry), rng, shorten=shorten
        )
        for _ in range(1, STRIKES_MOST):
            if rng.random() >= MORE_STRIKES_PART:
                break
            if rng.random() < FOLLOW_PART:
                moment, fault = self._following(moment, entry), rng.choice(faults)
            else:
                label, fault = self._least_tried(entry, faults)
                moment = rng.choice(entry.labels[label])
            fault = self._aimed(fault, moment, entry)
            struck = strike(Parent(struck, ()), moment, fault, rng, shorten=False)
        return struck

    def _least_tried(self, entry: Entry, faults: list[Fault]) -> tuple[str, Fault]:
        """Return the least tried of some drawn pairs of event and fault."""
        rng, labels = self._rng, sorted(entry.labels)
        weights = [1.0 / self._labels[label] for label in labels]
        drawn = zip(
            rng.choices(labels, weights, k=CANDIDATES),
            rng.choices(faults, k=CANDIDATES),
            strict=True,
        )
        label, fault = min(drawn, key=lambda pair: self._tried[pair[1].kind, pair[0]])
        self._tried[fault.kind, label] += 1
        return label, fault

    def _following(self, moment: Moment, entry: Entry) -> Moment:
        """Return a moment soon after a strike, or after its session has expired."""
        session_ms = settings_of(entry.parent.schedule).session_ms
        later_ms = [*FOLLOWS_MS, *(round(session_ms * part) for part in FOLLOWS_SESSIONS)]
        return replace(moment, at_ms=moment.at_ms + self._rng.choice(later_ms))

    def _aimed(self, fault: Fault, moment: Moment, entry: Entry) -> Fault:
        if self._rng.random() >= AIMED_PART:
            return fault
        settings = settings_of(entry.parent.schedule)
        return aimed(fault, drawn_target(self._rng, moment, settings))
