"""Shrinking: from a failing schedule to a smaller one that still fails, by running candidates (K9).

`shrink` is given a `Trial`: a function that runs a candidate and returns the schedule of the run in which it failed
as the first one did, or None. The order of the steps:

1. no fault at all: a failure that needs no fault is found at once;
2. fewer faults, by delta debugging: blocks of half of the faults are left out, then of a quarter, down to single ones
   (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002);
3. fewer brokers for each fault;
4. a smaller run (`smaller_runs`): fewer partitions, fewer records, fewer operations beside the faults, shorter;
5. shorter faults: half of the duration, as long as it still fails;
6. milder faults (`harrow.faults.milder`): a pause in place of a kill, half of a delay;
7. again from 2, until nothing can be left out or `runs_most` candidates have run;
8. later faults (`later`), where the caller says how long the traffic lasts.

Every accepted candidate has failed in a run, so the result of a shrink that ended early is a failing schedule too.

Where only the number of faults is wanted (`faults_only`), 2 is the last step. Where runs do not repeat, as on real
processes, `failing_again` makes a trial that runs each candidate several times.

A trial that has bounded runs of its own may raise `RunsUsedUpError`: the smallest schedule so far is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from harrow.faults.milder import milder_forms
from harrow.faults.schedule import Schedule, ScheduledFault

Trial = Callable[[Schedule], Schedule | None]
"""Runs a candidate; returns the schedule of the failing run with what was resolved in it, or None."""
SmallerRuns = Callable[[Schedule], Iterable[Schedule]]
"""Candidates that do less beside the faults, each a small step smaller."""
SmallerSteps = Callable[[ScheduledFault], Iterable[ScheduledFault]]
"""Forms of a step that are weaker than it."""
RUNS_MOST = 400
DURATION_LEAST_MS = 50
LATER_LEAST_MS = 20
"""A fault is not tried at a time that is hardly later."""


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

    def accept(self, candidate: Schedule, trial: Trial | None = None) -> bool:
        """Run a candidate, and keep it where it fails. `trial`: what runs it, in place of the usual one."""
        if self.runs >= self._runs_most:
            raise RunsUsedUpError
        self.runs += 1
        failed = (trial or self._trial)(candidate)
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

    def change_steps(self, smaller: SmallerSteps, trial: Trial | None = None) -> bool:
        """Try smaller forms of each step, as long as one fails; True where one did."""
        changed = False
        for number in range(len(self.best.steps)):
            while number < len(self.best.steps) and self._change_step(number, smaller, trial):
                changed = True
        return changed

    def _change_step(self, number: int, smaller: SmallerSteps, trial: Trial | None) -> bool:
        steps = self.best.steps
        return any(
            self.accept(replace(self.best, steps=(*steps[:number], step, *steps[number + 1 :])), trial)
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
    weaker: Trial | None = None,
    later: SmallerSteps | None = None,
    later_trial: Trial | None = None,
    runs_most: int = RUNS_MOST,
    faults_only: bool = False,
) -> Shrunk:
    """Return the smallest failing schedule that was found; `schedule` must have failed.

    `weaker`, `later_trial`: what runs a candidate with weaker faults, and with later ones; `trial` by default.
    `later`: forms of a step that fire later (`later_by_halves`); None: no fault is moved. `faults_only`: only leave out
    faults.
    """
    shrinker = Shrinker(schedule, trial, runs_most)
    complete = True
    try:
        if not schedule.steps or not shrinker.accept(replace(schedule, steps=())):
            shrinker.leave_out_faults()
            while not faults_only and _make_smaller(shrinker, smaller_runs, weaker):
                shrinker.leave_out_faults()
            if later is not None:
                shrinker.change_steps(later, later_trial)
    except RunsUsedUpError:
        complete = False
    assert len(shrinker.best.steps) <= len(schedule.steps), "the schedule that was shrunk has more faults"
    assert shrinker.runs <= runs_most, f"{shrinker.runs} candidates ran, at most {runs_most} may"
    return Shrunk(schedule=shrinker.best, before=len(schedule.steps), runs=shrinker.runs, complete=complete)


def _make_smaller(shrinker: Shrinker, smaller_runs: SmallerRuns | None, weaker: Trial | None) -> bool:
    """Try smaller faults and smaller runs; True where fewer faults may then be enough."""
    changed = shrinker.change_steps(fewer_brokers, weaker)
    if smaller_runs is not None:
        changed |= shrinker.change_run(smaller_runs)
    shrinker.change_steps(shorter, weaker)
    shrinker.change_steps(milder, weaker)
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


def milder(step: ScheduledFault) -> Iterator[ScheduledFault]:
    """Yield the step with each milder form of its fault, at the time at which it fired; its role is resolved again."""
    for fault in milder_forms(step.fault, step.details or {}):
        yield replace(_with_role(step), fault=fault, details=None)


def later_by_halves(step: ScheduledFault, latest_ms: int) -> Iterator[ScheduledFault]:
    """Yield the step half and a quarter of the way later to `latest_ms` after the first traffic.

    Later, and not earlier: what a reader sees before the fault is then the service at work, with its group stable and
    its metadata there, and not a start that the fault disturbs; little traffic follows that only repeats the failure.
    The report has the same length: 35 lines for the earlier and for the later half of the failing seeds of the pair
    `acks_one` of the simulated gallery. Fewer records make both parts shorter.
    """
    if step.after or step.nodes is None or step.fired_ms is None:
        return
    for part in (2, 4):
        by_ms = (latest_ms - step.fired_ms) // part
        if by_ms >= LATER_LEAST_MS:
            yield replace(step, fired_ms=step.fired_ms + by_ms)
