"""Shrinking by simulation: each candidate is a simulated run, which takes about a second and repeats byte for byte.

A change of the schedule moves all that follows in the simulated world, so a candidate may miss the failure although its
faults would do. It is therefore run in several worlds (`WORLDS`): with the seed of the last failing run, then with
others. The schedule that is returned has the seed of the world in which it failed, so it repeats exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from harrow.cluster.errors import ConfigError
from harrow.faults.runs import EXACTLY_ONCE, ORDERS
from harrow.faults.schedule import Schedule

from ..run_settings import RunSettings, settings_of
from ..simulation import SimulationResult, run_schedule
from .shrinking import RUNS_MOST, Shrunk, shrink

WORLDS = 4
BATCHES_LEAST = 4
AFTER_LAST_FAULT_S = 1.0


class SimulatedTrial:
    """Runs candidates, and says which anomalies count as the same failure."""

    def __init__(self, first: SimulationResult, names: Collection[str] = ()) -> None:
        self._anomalies = set(names) or {name for name, _ in first.anomalies}
        self.last = first
        """The result of the last run that failed."""

    def __call__(self, candidate: Schedule) -> Schedule | None:
        """Run the candidate in several worlds; return the first schedule that fails as the first one did."""
        seed = settings_of(candidate).seed
        for world in range(WORLDS):
            run = {**candidate.run, "seed": seed + world}
            result = run_schedule(replace(candidate, run=run))
            if self._anomalies & {name for name, _ in result.anomalies}:
                self.last = result
                return result.schedule
        return None


def shrink_simulated(
    schedule: Schedule, *, runs_most: int = RUNS_MOST, names: Collection[str] = (), faults_only: bool = False
) -> tuple[Shrunk, SimulationResult]:
    """Return the smallest schedule, and the result of its run; ConfigError for a schedule that does not fail.

    `names`: anomalies that count as the same failure; by default all of the first run. `faults_only`: only leave out
    faults, and let each of them and the run be as they were.
    """
    first = run_schedule(schedule)
    if first.status != "invalid":
        raise ConfigError(
            f"this schedule is {first.status} in simulation, so there is nothing to shrink; a schedule of real "
            "processes may need them to fail: repeat its test with --harrow-shrink"
        )
    trial = SimulatedTrial(first, names)
    shrunk = shrink(
        first.schedule, trial, smaller_runs=smaller_simulations, runs_most=runs_most, faults_only=faults_only
    )
    return shrunk, trial.last


def smaller_simulations(schedule: Schedule) -> Iterator[Schedule]:
    """Yield runs that do less: without the job, fewer operations, partitions and records, and a shorter time."""
    settings = settings_of(schedule)
    for smaller in _smaller_settings(settings):
        yield replace(schedule, run={**schedule.run, **smaller})
    ends_ms = [(step.fired_ms or 0) + (step.duration_ms or 0) for step in schedule.steps]
    seconds = max(ends_ms, default=0) / 1_000 + AFTER_LAST_FAULT_S
    if seconds < settings.seconds - AFTER_LAST_FAULT_S:
        run = {**schedule.run, "seconds": seconds}
        yield replace(schedule, run=run, duration_ms=round(seconds * 1_000))


def _smaller_settings(settings: RunSettings) -> Iterator[dict[str, object]]:
    if settings.workload == EXACTLY_ONCE:
        yield {"workload": ORDERS}
        for name in sorted(set(settings.operations)):
            yield {"operations": [other for other in settings.operations if other != name]}
    if settings.partitions > 1:
        yield {"partitions": settings.partitions - 1}
    if settings.in_flight > 1:
        yield {"in_flight": 1}
    if settings.batches >= 2 * BATCHES_LEAST:
        yield {"batches": settings.batches // 2}
