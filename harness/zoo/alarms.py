"""False alarms: the runs that the searches propose, on brokers without a bug. None of them may have an anomaly (M1).

Runs of the random search and of each bug's directed search come in turn, so that every application, setting and order
of faults with which a bug is found is also judged without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harrow.faults.schedule import Schedule

from ..simulation import run_schedule
from .bug import Bug, plan_directed, unplanted
from .swarm import plan_swarm

SEEDS_FROM = 1_000_000_000
"""Above the seeds of trials, so that no run is judged twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One run without a bug."""

    source: str
    """`random`, or the name of the bug whose directed search proposes it."""
    status: str
    anomalies: tuple[str, ...]
    schedule: Schedule


def plan_unplanted(number: int, bugs: Sequence[Bug]) -> tuple[str, Schedule]:
    """Return the source and the schedule of the n-th run: every second one is of the random search."""
    turn, is_directed = divmod(number, 2)
    if not is_directed or not bugs:
        return "random", plan_swarm(SEEDS_FROM + number)
    bug = bugs[turn % len(bugs)]
    return bug.name, unplanted(plan_directed(bug, SEEDS_FROM + number))


def judge_unplanted(numbers: Sequence[int], bugs: Sequence[Bug]) -> list[Judged]:
    """Run some of them, one after the other."""
    results = list[Judged]()
    for number in numbers:
        source, schedule = plan_unplanted(number, bugs)
        result = run_schedule(schedule)
        results.append(
            Judged(
                source=source, status=result.status, schedule=result.schedule,
                anomalies=tuple(sorted({name for name, _ in result.anomalies})),
            )
        )  # fmt: skip
    return results
