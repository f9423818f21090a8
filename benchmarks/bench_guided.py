"""Compares the guided search with the random search, over the same pool of runs, with the same seeds and budget.

    python benchmarks/bench_guided.py [--bugs kip_101,kafka_5494] [--seconds 60] [--first 0] [--budget 60] [--jobs 1]
                                      [--features 60]

For each planted bug of the zoo both searches have `--seconds` of processor time. A trial looks for the bug until it
has found it or has used up `--budget`; then the next trial begins, with other seeds and a search that knows nothing.
So finds a minute say how soon a search finds the bug, also where most trials find nothing, and no trial has to be
counted with its budget instead of its time. Both searches have trials of the same numbers.

Printed for each bug: finds and finds a minute of both, and their ratio, which says how many times sooner the guided
search finds it (half a find is added on both sides, so that a search without a find has a ratio, too). Then the number
of distinct features that each search reached in `--features` seconds on brokers without a bug. The last line is the
geometric mean of the ratios over the bugs that at least one search found.

Exit code 1 when the mean is below the goal. Mallory (CCS 2023) reports 1.87 over Jepsen's random faults, and 54 % more
states.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from dataclasses import dataclass
from statistics import geometric_mean

from harrow.harness.search.guided import GuidedSearch
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.catalog import ZOO, bug_named
from harrow.harness.zoo.swarm import plan_swarm
from harrow.harness.zoo.trial import GUIDED, RANDOM, SEEDS_OF_TRIAL, RandomSearch, Search, run_trial

GOAL = 2.0
"""How many times sooner the guided search finds a bug."""
COMPARED = (RANDOM, GUIDED)


@dataclass(frozen=True, slots=True)
class Share:
    """What one search for one bug is given."""

    bug: str
    search: str
    seconds: float
    budget_s: float
    first: int
    """Number of the first trial."""


@dataclass(frozen=True, slots=True)
class Finds:
    """What one search for one bug achieved."""

    count: int
    used_s: float
    runs: int

    @property
    def per_minute(self) -> float:
        """Finds a minute, with half a find added."""
        return 60 * (self.count + 0.5) / self.used_s

    def __str__(self) -> str:
        return f"{self.count:>5} {60 * self.count / self.used_s:>7.1f} {self.runs:>6}"


def find(share: Share) -> Finds:
    """Repeat trials with new seeds until the time is used up; the last one ends with it."""
    used_s, count, runs, number = 0.0, 0, 0, share.first
    while used_s < share.seconds:
        left_s = min(share.budget_s, share.seconds - used_s)
        trial = run_trial(bug_named(share.bug), number, share.search, budget_s=left_s)
        used_s += trial.seconds
        count += trial.found
        runs += trial.runs
        number += 1
    return Finds(count, used_s, runs)


def features_reached(search: Search, budget_s: float) -> int:
    """Return how many features the runs of a search reach in so much processor time."""
    reached, end_s = set[str](), time.process_time() + budget_s
    while time.process_time() < end_s:
        result = run_schedule(search.propose(), keep_coverage=True)
        search.learn(result)
        assert result.coverage is not None
        reached |= result.coverage.features
    return len(reached)


def features_line(number: int, budget_s: float) -> str:
    """Compare the features of one trial on brokers without a bug."""
    first = number * SEEDS_OF_TRIAL + 1
    random_count = features_reached(RandomSearch(first, plan_swarm), budget_s)
    guided_count = features_reached(GuidedSearch(first, plan_swarm), budget_s)
    return (
        f"features in {budget_s:.0f} s, trial {number}: random {random_count:,}, guided {guided_count:,}, "
        f"{guided_count / random_count:.2f} times as many"
    )


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description="guided search against random search")
    parser.add_argument("--bugs", default=",".join(bug.name for bug in ZOO))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each search for each bug")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--budget", type=float, default=60.0, help="processor seconds of a trial")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--features", type=float, default=60.0, help="processor seconds; 0: none")
    given = parser.parse_args()
    names = given.bugs.split(",")
    shares = [Share(name, search, given.seconds, given.budget, given.first) for name in names for search in COMPARED]
    head = f"{'finds':>5} {'a min.':>7} {'runs':>6}"
    print(f"{'':20}{'random':^20}  {'guided':^20}\n{'bug':20}{head}  {head}  ratio", flush=True)
    ratios = list[float]()
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
        found = pool.imap(find, shares)
        for name in names:
            by_random, by_guided = next(found), next(found)
            ratio = by_guided.per_minute / by_random.per_minute
            if by_random.count or by_guided.count:
                ratios.append(ratio)
            print(f"{name:20}{by_random}  {by_guided}  {ratio:>5.2f}", flush=True)
    if given.features:
        print(features_line(given.first, given.features), flush=True)
    if not ratios:
        print("no search found any of these bugs")
        return 1
    mean = geometric_mean(ratios)
    print(
        f"{len(ratios)} of {len(names)} bugs found; guided finds them {mean:.2f} times as soon "
        f"(geometric mean); goal {GOAL:g}: {'met' if mean >= GOAL else 'missed'}"
    )
    return 0 if mean >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
