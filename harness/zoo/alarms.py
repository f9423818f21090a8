"""False alarms: the runs that the searches propose, on brokers without a bug. None of them may have an anomaly (M1).

Runs of the random search, of each bug's directed search and of the guided search come in turn, so that every
application, setting and order of faults with which a bug is found is also judged without it. Or all runs are those of
one search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug

from ..search.guided import SEEDS_A_RUN, GuidedSearch
from ..simulation import run_schedule
from .directed import plan_directed, unplanted
from .swarm import plan_swarm
from .trial import DIRECTED, GUIDED, RANDOM

SEEDS_FROM = 1_000_000_000
"""Above the seeds of trials, so that no run is judged twice."""
GUIDED_SEEDS_FROM = 2_000_000_000
SOURCES = (RANDOM, GUIDED, DIRECTED)
"""The searches whose runs come in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run without a bug."""

    source: str
    """`random`, `guided`, or the name of the bug whose directed search proposes it."""
    status: str
    anomalies: tuple[str, ...]
    schedule: Schedule


def source_of(number: int, bugs: Sequence[Bug], search: str | None = None) -> str:
    """Return which search proposes the n-th run; `search`: all runs are those of this one."""
    turn, which = (number, SOURCES.index(search)) if search else divmod(number, len(SOURCES))
    source = SOURCES[which]
    return bugs[turn % len(bugs)].name if source == DIRECTED else source


def judge_unplanted(numbers: Sequence[int], bugs: Sequence[Bug], search: str | None = None) -> list[Judged]:
    """Run some of them, one after the other. The guided search learns from its runs among them."""
    results = list[Judged]()
    by_name = {bug.name: bug for bug in bugs}
    guided = GuidedSearch(GUIDED_SEEDS_FROM + numbers[0] * SEEDS_A_RUN, plan_swarm)
    for number in numbers:
        source = source_of(number, bugs, search)
        if source == GUIDED:
            result = run_schedule(guided.propose(), keep_coverage=True)
            guided.learn(result)
        else:
            result = run_schedule(plan_unplanted(by_name.get(source), SEEDS_FROM + number))
        results.append(
            Judged(
                source=source,
                status=result.status,
                schedule=result.schedule,
                anomalies=tuple(sorted({name for name, _ in result.anomalies})),
            )
        )
    return results


def plan_unplanted(bug: Bug | None, seed: int) -> Schedule:
    """Return a run of the bug's directed search without the bug, or one of the random search."""
    return plan_swarm(seed) if bug is None else unplanted(plan_directed(bug, seed))
