"""One trial: a search for one planted bug, until a run shows it or the time is used up.

A run counts only when the same schedule on brokers without the bug has no anomaly: then it is the bug that was found,
and not a fault of the harness. Time is that of the runs alone: in simulation the processor time of the searching
process, so a loaded machine does not move it much; on real processes wall time. The run without the bug is not counted,
because a user's search does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug

from ..search.guided import GuidedSearch
from ..simulation import SimulationResult, run_schedule
from .directed import plan_directed, plan_in_order, unplanted
from .swarm import plan_swarm

BUDGET_S = 60.0
SEEDS_OF_TRIAL = 1_000_000
"""Trials of different numbers run different seeds."""
DIRECTED, EVENTS, RANDOM, GUIDED = "directed", "events", "random", "guided"


class Search(Protocol):
    """One search for a failure: a function of its seed and of the results that it has seen.

    It holds no clock and runs nothing itself, so that two searches can be compared with the same seeds and budget.
    """

    @property
    def wants_coverage(self) -> bool:
        """Whether the results that it is given must say what the run reached."""
        ...

    def propose(self) -> Schedule:
        """Return the next run."""
        ...

    def learn(self, result: SimulationResult) -> None:
        """Take the result of the run that was proposed last."""
        ...


class RandomSearch:
    """Draws one run after the other and learns nothing."""

    wants_coverage = False

    def __init__(self, first_seed: int, plan: Callable[[int], Schedule]) -> None:
        self._seed = first_seed
        self._plan = plan

    def propose(self) -> Schedule:
        """Return the run of the next seed."""
        self._seed += 1
        return self._plan(self._seed - 1)

    def learn(self, result: SimulationResult) -> None:
        """Nothing: the next run does not depend on this one."""


SearchMaker = Callable[[Bug, int], Search]
"""Makes the search of one trial, from the bug and the first seed."""
SEARCHES: Mapping[str, SearchMaker] = {
    DIRECTED: lambda bug, first: RandomSearch(first, lambda seed: plan_directed(bug, seed)),
    EVENTS: lambda bug, first: RandomSearch(first, lambda seed: plan_in_order(bug, seed)),
    RANDOM: lambda bug, first: RandomSearch(first, lambda seed: plan_swarm(seed, (bug.module,))),
    GUIDED: lambda bug, first: GuidedSearch(first, lambda seed: plan_swarm(seed, (bug.module,))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What one run showed."""

    anomalies: frozenset[str]
    """Names."""
    faults: int
    """How many took effect."""
    schedule: Schedule
    """As it ran, with what was resolved."""
    simulated: SimulationResult | None = None
    """From which a search learns; None for a run on real processes."""


class Runs(Protocol):
    """Where the runs of a trial take place."""

    def run(self, schedule: Schedule, *, keep_coverage: bool = False) -> Observed:
        """Run a schedule from start to verdict; only a simulation has coverage."""
        ...

    def clock(self) -> float:
        """Return the time in seconds that a budget counts."""
        ...


class SimulatedRuns:
    """Runs on a virtual clock, in this process."""

    def run(self, schedule: Schedule, *, keep_coverage: bool = False) -> Observed:
        """Run it; ConfigError for a schedule that no simulation can run."""
        result = run_schedule(schedule, keep_coverage=keep_coverage)
        return Observed(
            anomalies=frozenset(name for name, _ in result.anomalies),
            faults=len(result.faults),
            schedule=result.schedule,
            simulated=result,
        )

    def clock(self) -> float:
        """Return the processor time of this process."""
        return time.process_time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one trial."""

    bug: str
    """Name of its module."""
    search: str
    number: int
    found: bool
    seconds: float
    """Until the bug was found, or the budget was used up."""
    runs: int
    faults: int
    """How many took effect in the run that found it."""
    anomalies: tuple[str, ...]
    """Names, of the run that found it."""
    others: tuple[str, ...]
    """Names of anomalies that do not name the bug, in the runs before."""
    false_alarms: tuple[Schedule, ...]
    """Runs that had an anomaly without the bug, too: each shows a defect of the harness or of the brokers."""
    schedule: Schedule | None
    """Of the run that found it."""


def run_trial(
    bug: Bug, number: int, search_name: str = DIRECTED, *, budget_s: float = BUDGET_S, where: Runs | None = None
) -> Trial:
    """Search for `bug` with the runs that follow from `number`; by default in simulation."""
    search = SEARCHES[search_name](bug, number * SEEDS_OF_TRIAL + 1)
    runs = SimulatedRuns() if where is None else where
    used_s, count = 0.0, 0
    others, false_alarms = set[str](), list[Schedule]()
    found: Observed | None = None
    while used_s < budget_s and found is None:
        began = runs.clock()
        schedule = search.propose()
        observed = runs.run(schedule, keep_coverage=search.wants_coverage)
        if observed.simulated is not None:
            search.learn(observed.simulated)
        used_s += runs.clock() - began
        count += 1
        if not observed.anomalies:
            continue
        if runs.run(unplanted(schedule)).anomalies:
            false_alarms.append(unplanted(observed.schedule))
        elif observed.anomalies & bug.seen_as:
            found = observed
        else:
            others |= observed.anomalies
    return Trial(
        bug=bug.name,
        search=search_name,
        number=number,
        found=found is not None,
        seconds=used_s,
        runs=count,
        faults=0 if found is None else found.faults,
        anomalies=() if found is None else tuple(sorted(found.anomalies)),
        others=tuple(sorted(others)),
        false_alarms=tuple(false_alarms),
        schedule=None if found is None else found.schedule,
    )
