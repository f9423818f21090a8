"""Shrinking: from a failing schedule to a smaller one that still fails, by running candidates (K9).

`shrink` is given a `Trial`: a function that runs a candidate and returns the schedule of the run in which it failed
as the first one did, or None. The order of the steps:

1. no fault at all: a failure that needs no fault is found at once;
2. fewer faults, by delta debugging: blocks of half of the faults are left out, then of a quarter, down to single ones
   (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002);
3. fewer brokers for each fault;
4. a smaller run (`smaller_runs`): fewer partitions, fewer records, fewer operations beside the faults, shorter;
5. shorter faults: half of the duration, as long as it still fails;
6. again from 2, until nothing can be left out or `runs_most` candidates have run.

Every accepted candidate has failed in a run, so the result of a shrink that ended early is a failing schedule too.

Where only the number of faults is wanted (`faults_only`), 2 is the last step. Where runs do not repeat, as on real
processes, `failing_again` makes a trial that runs each candidate several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from harrow.faults.schedule import Schedule, ScheduledFault

Trial = Callable[[Schedule], Schedule | None]
"""Runs a candidate; returns the schedule of the failing run with what was resolved in it, or None."""
SmallerRuns = Callable[[Schedule], Iterable[Schedule]]
"""Candidates that do less beside the faults, each a small step smaller."""
RUNS_MOST = 400
DURATION_LEAST_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The result of a shrink."""

    schedule: Schedule
    """The smallest schedule that failed."""
    before: int
    """How many faults there were at first."""
    runs: int
    """How many candidates ran."""
    complete: bool
    """False when `runs_most` candidates had run before nothing more could be left out."""

    def summary(self) -> str:
        """Return the result as a line."""
        faults = len(self.schedule.steps)
        ended = "" if self.complete else "; not finished: allow more runs to shrink it further"
        return f"{self.before} faults shrunk to {faults} in {self.runs} runs{ended}"


class RunsUsedUpError(Exception):
    """`runs_most` candidates have run."""


class Shrinker:
    """One shrink: the smallest schedule so far, and what remains of the runs."""

    def __init__(self, first: Schedule, trial: Trial, runs_most: int) -> None:
        self.best = first
        self._trial = trial
        self._runs_most = runs_most
        self.runs = 0

    def accept(self, candidate: Schedule) -> bool:
        """Run a candidate, and keep it where it fails."""
        if self.runs >= self._runs_most:
            raise RunsUsedUpError
        self.runs += 1
        failed = self._trial(candidate)
        if failed is None:
            return False
        assert len(failed.steps) <= len(candidate.steps), f"a run of {candidate.steps} has the steps {failed.steps}"
        self.best = failed
        return True

    def leave_out_faults(self) -> bool:
        """Leave out blocks of faults of ever smaller sizes; True where some are gone."""
        before = len(self.best.steps)
        size = max(1, before // 2)
        while True:
            gone = self._leave_out_blocks(size)
            if size == 1 and not gone:
                return len(self.best.steps) < before
            size = max(1, size // 2)

    def _leave_out_blocks(self, size: int) -> bool:
        gone, at = False, 0
        while at < len(self.best.steps) > 1:
            steps = self.best.steps
            left_out = {step.id for step in steps[at : at + size]}
            candidate = self.best.without(left_out)
            assert len(candidate.steps) < len(steps), f"nothing is left out of {len(steps)} steps: {sorted(left_out)}"
            if candidate.steps and self.accept(candidate):
                gone = True
            else:
                at += size
        return gone

    def change_steps(self, smaller: Callable[[ScheduledFault], Iterable[ScheduledFault]]) -> bool:
        """Try smaller forms of each step, as long as one fails; True where one did."""
        changed = False
        for number in range(len(self.best.steps)):
            while number < len(self.best.steps) and self._change_step(number, smaller):
                changed = True
        return changed

    def _change_step(self, number: int, smaller: Callable[[ScheduledFault], Iterable[ScheduledFault]]) -> bool:
        steps = self.best.steps
        return any(
            self.accept(replace(self.best, steps=(*steps[:number], step, *steps[number + 1 :])))
            for step in smaller(steps[number])
        )

    def change_run(self, smaller: SmallerRuns) -> bool:
        """Try smaller runs, as long as one fails; True where one did."""
        changed = False
        while any(map(self.accept, smaller(self.best))):
            changed = True
        return changed


def failing_again(fails: Callable[[Schedule], bool], *, failures: int, runs: int) -> Trial:
    """Return a trial that accepts a candidate when it fails in `failures` of up to `runs` runs.

    It stops as soon as the result is certain, and returns the candidate itself: nothing of a run is resolved in it.
    """
    assert 1 <= failures <= runs, (failures, runs)

    def trial(candidate: Schedule) -> Schedule | None:
        lacking, left = failures, runs
        while 0 < lacking <= left:
            left -= 1
            lacking -= fails(candidate)
        return None if lacking else candidate

    return trial


def with_roles(schedule: Schedule) -> Schedule:
    """Return a recorded schedule with roles in place of brokers, each fault at the time at which it fired."""
    return replace(schedule, steps=tuple(map(_with_role, schedule.steps)))


def _with_role(step: ScheduledFault) -> ScheduledFault:
    if step.after:
        return replace(step, nodes=None, fired_ms=None)
    at_ms = step.at_ms if step.fired_ms is None else step.fired_ms
    return replace(step, nodes=None, fired_ms=None, trigger="traffic", at_ms=at_ms)


def shrink(
    schedule: Schedule,
    trial: Trial,
    *,
    smaller_runs: SmallerRuns | None = None,
    runs_most: int = RUNS_MOST,
    faults_only: bool = False,
) -> Shrunk:
    """Return the smallest failing schedule that was found; `schedule` must have failed.

    `faults_only`: only leave out faults.
    """
    shrinker = Shrinker(schedule, trial, runs_most)
    complete = True
    try:
        if not schedule.steps or not shrinker.accept(replace(schedule, steps=())):
            shrinker.leave_out_faults()
            while not faults_only and _make_smaller(shrinker, smaller_runs):
                shrinker.leave_out_faults()
    except RunsUsedUpError:
        complete = False
    assert len(shrinker.best.steps) <= len(schedule.steps), "the schedule that was shrunk has more faults"
    assert shrinker.runs <= runs_most, f"{shrinker.runs} candidates ran, at most {runs_most} may"
    return Shrunk(schedule=shrinker.best, before=len(schedule.steps), runs=shrinker.runs, complete=complete)


def _make_smaller(shrinker: Shrinker, smaller_runs: SmallerRuns | None) -> bool:
    """Try smaller faults and smaller runs; True where fewer faults may then be enough."""
    changed = shrinker.change_steps(fewer_brokers)
    if smaller_runs is not None:
        changed |= shrinker.change_run(smaller_runs)
    shrinker.change_steps(shorter)
    return changed


def fewer_brokers(step: ScheduledFault) -> Iterator[ScheduledFault]:
    """Yield the step without one of its brokers."""
    nodes = step.nodes or ()
    if len(nodes) > 1:
        for node in nodes:
            yield replace(step, nodes=tuple(other for other in nodes if other != node))


def shorter(step: ScheduledFault) -> Iterator[ScheduledFault]:
    """Yield the step with half of its duration."""
    if step.duration_ms is not None and step.duration_ms >= 2 * DURATION_LEAST_MS:
        yield replace(step, duration_ms=step.duration_ms // 2)
