"""How few faults show a bug that a trial has found: its schedule without the faults that the bug does not need.

Only faults are left out: the rest of the run stays as it was. In simulation a candidate is kept when one of its worlds
shows the bug (`search/simulated.py`). No run on real processes repeats, so a candidate with its faults by role is kept
there when `FAILURES` of up to `RUNS` runs show the bug, and the schedule itself must have done so first.

The result counts only when the same schedule on brokers without the bug has no anomaly; otherwise it is a false alarm.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from harrow.faults.schedule import Schedule
from harrow.faults.zoo.bug import Bug

from ..search.shrinking import Shrunk, failing_again, shrink, with_roles
from ..search.simulated import shrink_simulated
from .directed import unplanted
from .trial import Runs, SimulatedRuns

CANDIDATES_MOST = 120
FAILURES, RUNS = 2, 3
"""On real processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestFaults:
    """The result for one schedule."""

    schedule: Schedule | None
    """With the faults that remain; None where the bug did not come back with the same schedule."""
    false_alarm: Schedule | None = None
    """`schedule` without the bug, where it has an anomaly all the same; `schedule` is then None."""


def fewest_faults(bug: Bug, schedule: Schedule, where: Runs | None = None) -> FewestFaults:
    """Leave out faults of `schedule`, a run that showed `bug`; by default in simulation."""
    if where is None:
        where = SimulatedRuns()
        shrunk, _ = shrink_simulated(schedule, runs_most=CANDIDATES_MOST, names=bug.seen_as, faults_only=True)
    else:
        again = shrink_by_role(schedule, where, bug.seen_as)
        if again is None:
            return FewestFaults(schedule=None)
        shrunk = again
    without = unplanted(shrunk.schedule)
    if where.run(without).anomalies:
        return FewestFaults(schedule=None, false_alarm=without)
    return FewestFaults(schedule=shrunk.schedule)


def shrink_by_role(schedule: Schedule, where: Runs, names: Collection[str]) -> Shrunk | None:
    """Leave out faults where runs do not repeat; None when the bug does not come back with all of them.

    `names`: the anomalies that name the bug.
    """
    trial = failing_again(
        lambda candidate: not where.run(candidate).anomalies.isdisjoint(names), failures=FAILURES, runs=RUNS
    )
    first = trial(with_roles(schedule))
    if first is None:
        return None
    return shrink(first, trial, runs_most=CANDIDATES_MOST, faults_only=True)
