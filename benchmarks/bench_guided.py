"""Compares the guided search with the random search, over the same pool of runs, with the same seeds and budget.

    python benchmarks/bench_guided.py [--bugs kip_101,kafka_5494] [--trials 3] [--first 0] [--budget 60] [--minutes 20]
                                      [--features 60]

For each planted bug of the zoo and each trial, both searches look for the bug until they have found it or `--budget`
seconds of processor time are used up. A search that found nothing counts with the whole budget, so the means are
restricted means. Printed: how often each search found the bug, median and restricted mean of both, their ratio, and
the number of distinct features that each search reached in `--features` seconds on brokers without a bug.

No trial begins after `--minutes`; what was left out is said. Exit code 1 when the ratio of the restricted means, over
all trials, is below the goal. Mallory (CCS 2023) reports 1.87 over Jepsen's random faults, and 54 % more states.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean, median

from harrow.harness.search.guided import GuidedSearch
from harrow.harness.search.proposals import RandomSearch, Search
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.bug import Bug
from harrow.harness.zoo.catalog import ZOO, bug_named
from harrow.harness.zoo.swarm import plan_swarm
from harrow.harness.zoo.trial import GUIDED, RANDOM, SEEDS_OF_TRIAL, run_trial

GOAL = 2.0
"""How many times sooner the guided search finds a bug."""
COMPARED = (RANDOM, GUIDED)


@dataclass(slots=True)
class Times:
    """The times of one search for one bug; those of trials without a result are the budget."""

    seconds: list[float] = field(default_factory=list[float])
    found: int = 0


def compare(bug: Bug, trials: Sequence[int], budget_s: float, end: float) -> dict[str, Times]:
    """Run both searches with the same trial numbers, in turns, until `end`."""
    times = {name: Times() for name in COMPARED}
    for number in trials:
        if time.monotonic() > end:
            break
        for name in COMPARED:
            trial = run_trial(bug, number, name, budget_s=budget_s)
            times[name].found += trial.found
            times[name].seconds.append(min(trial.seconds, budget_s) if trial.found else budget_s)
    return times


def features_reached(search: Search, budget_s: float) -> int:
    """Return how many features the runs of a search reach in so much processor time."""
    reached, used_s = set[str](), 0.0
    while used_s < budget_s:
        began = time.process_time()
        result = run_schedule(search.propose(), keep_coverage=True)
        search.learn(result)
        used_s += time.process_time() - began
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


def line_of(name: str, times: dict[str, Times]) -> str:
    """One bug as a line of the table."""
    shown = [name.ljust(14), f"{len(times[RANDOM].seconds):>6}"]
    for search in COMPARED:
        own = times[search]
        shown.append(f"{own.found:>6} {median(own.seconds):>7.1f} {mean(own.seconds):>7.1f}")
    ratio = mean(times[RANDOM].seconds) / mean(times[GUIDED].seconds)
    return "  ".join([*shown, f"{ratio:>6.2f}"])


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description="guided search against random search")
    parser.add_argument("--bugs", default=",".join(bug.name for bug in ZOO))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--budget", type=float, default=60.0, help="processor seconds of a trial")
    parser.add_argument("--minutes", type=float, default=20.0, help="no trial begins later")
    parser.add_argument("--features", type=float, default=60.0, help="processor seconds; 0: none")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    trials = range(given.first, given.first + given.trials)
    if given.features:
        print(features_line(given.first, given.features), flush=True)
    print(f"{'':14}  {'':6}  {'random':^22}  {'guided':^22}")
    head = f"{'found':>6} {'median':>7} {'mean':>7}"
    print("  ".join(["bug".ljust(14), "trials", head, head, " ratio"]), flush=True)
    everything = {name: Times() for name in COMPARED}
    for name in given.bugs.split(","):
        times = compare(bug_named(name), trials, given.budget, end)
        if len(times[RANDOM].seconds) < given.trials:
            print(
                f"{name}: {len(times[RANDOM].seconds)} of {given.trials} trials ran within --minutes"
            )
        if not times[RANDOM].seconds:
            continue
        print(line_of(name, times), flush=True)
        for search in COMPARED:
            everything[search].found += times[search].found
            everything[search].seconds += times[search].seconds
    if not everything[RANDOM].seconds:
        return 1
    print(line_of("all", everything))
    ratio = mean(everything[RANDOM].seconds) / mean(everything[GUIDED].seconds)
    print(f"goal: {GOAL:g} times sooner: {'met' if ratio >= GOAL else 'missed'}")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
