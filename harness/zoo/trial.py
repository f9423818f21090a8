"""One trial: a search for one planted bug, until a run shows it or the processor time is used up.

A run counts only when the same schedule on brokers without the bug has no anomaly: then it is the bug that was found,
and not a fault of the harness. Time is the processor time of the searching process, so a loaded machine does not move
it much; the run without the bug is not counted, because a user's search does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harrow.faults.schedule import Schedule

from ..search.guided import GuidedSearch
from ..search.proposals import RandomSearch, Search
from ..simulation import SimulationResult, run_schedule
from .bug import Bug, plan_directed, unplanted
from .swarm import plan_swarm

BUDGET_S = 60.0
SEEDS_OF_TRIAL = 1_000_000
"""Trials of different numbers run different seeds."""
DIRECTED, RANDOM, GUIDED = "directed", "random", "guided"
SearchMaker = Callable[[Bug, int], Search]
"""Makes the search of one trial, from the bug and the first seed."""
SEARCHES: Mapping[str, SearchMaker] = {
    DIRECTED: lambda bug, first: RandomSearch(first, lambda seed: plan_directed(bug, seed)),
    RANDOM: lambda bug, first: RandomSearch(first, lambda seed: plan_swarm(seed, (bug.module,))),
    GUIDED: lambda bug, first: GuidedSearch(first, lambda seed: plan_swarm(seed, (bug.module,))),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one trial."""

    bug: str
    search: str
    seed: int
    """The number of the trial."""
    found: bool
    cpu_s: float
    """Processor time until the bug was found, or that was used up."""
    runs: int
    faults: int
    """How many faults took effect in the run that found it."""
    anomalies: tuple[str, ...]
    """Names, of the run that found it."""
    others: tuple[str, ...]
    """Names of anomalies that do not name the bug, in runs that did not find it."""
    false_alarms: tuple[int, ...]
    """Seeds of runs that had an anomaly without the bug, too: each is a defect of the harness or of the brokers."""
    schedule: Schedule | None


def run_trial(
    bug: Bug, seed: int, search_name: str = DIRECTED, *, budget_s: float = BUDGET_S
) -> Trial:
    """Search for `bug`, with the runs that follow from `seed`; ConfigError for a plan that no simulation can run."""
    search = SEARCHES[search_name](bug, seed * SEEDS_OF_TRIAL + 1)
    used_s, runs = 0.0, 0
    others, false_alarms = set[str](), list[int]()
    while used_s < budget_s:
        schedule = search.propose()
        began = time.process_time()
        result = run_schedule(schedule, keep_coverage=search.wants_coverage)
        search.learn(result)
        used_s += time.process_time() - began
        runs += 1
        names = {name for name, _ in result.anomalies}
        if not names:
            continue
        without = run_schedule(unplanted(schedule))
        if without.anomalies:
            false_alarms.append(result.seed)
        elif names & bug.seen_as:
            return _trial(bug, search_name, seed, used_s, runs, others, false_alarms, found=result)
        else:
            others |= names
    return _trial(bug, search_name, seed, used_s, runs, others, false_alarms, found=None)


def _trial(
    bug: Bug, search_name: str, seed: int, used_s: float, runs: int, others: set[str], false_alarms: list[int],
    *, found: SimulationResult | None,
) -> Trial:  # fmt: skip
    return Trial(
        bug=bug.name, search=search_name, seed=seed, found=found is not None, cpu_s=used_s, runs=runs,
        faults=0 if found is None else len(found.faults),
        anomalies=() if found is None else tuple(sorted({name for name, _ in found.anomalies})),
        others=tuple(sorted(others)), false_alarms=tuple(false_alarms),
        schedule=None if found is None else found.schedule,
    )  # fmt: skip
