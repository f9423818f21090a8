"""Making the failure of a simulated test smaller: fewer and weaker faults, then fewer records, partitions and brokers.

A candidate is a run of the test with other schedules of its chaos blocks, or with smaller sizes (`run/sizes.py`). It
counts when the run fails with one of the anomalies of the first failure. Each change moves all that follows in a
simulated world, and a fault mostly shows a bug only at few moments. So a candidate is tried in several worlds as it is,
and then with its faults at other moments: often where a fault was left out, seldom where it became weaker.

Smaller sizes are tried only where the test passes with them without faults; that run also says how long the traffic
lasts then. All of it takes at most `runs_most` runs; `FAULTS_PART` of them may be used for the faults.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from harrow.faults.schedule import Schedule, ScheduledFault

from ..backends.simulated.source import FRAMES_MOST
from ..run.sizes import BROKERS, smaller_in_words
from ..search.shrinking import RunsUsedUpError, Shrunk, later_by_halves, shrink, with_roles
from .simulation_server import PASSED, SeedResult

RUNS_MOST = 150
"""How many runs a shrink uses where --harrow-shrink does not say it."""
FAULTS_PART = 0.6
Rows = Mapping[str, Any]
"""The JSON of the schedules of the chaos blocks, by "fixture/block"."""


class RunTest(Protocol):
    """Runs the test once, with these schedules and sizes in the world of a seed."""

    def __call__(
        self, seed: int, rows: Rows, sizes: Mapping[str, int], windows_ms: list[int], *, faultless: bool = False
    ) -> SeedResult:
        """Return what it found."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tries:
    """How often a candidate is tried before it is given up."""

    worlds: int
    """As it is, in so many worlds."""
    moments: int = 0
    """With its faults at other moments, so often."""


FEWER_FAULTS = Tries(worlds=3, moments=20)
WEAKER_FAULTS = Tries(worlds=2, moments=4)
LATER_FAULTS = Tries(worlds=2, moments=6)
SMALLER_SIZES = Tries(worlds=1, moments=7)


@dataclass(slots=True, kw_only=True)
class SmallerFailure:
    """A failure, and how small it was made."""

    result: SeedResult
    """The run that failed."""
    windows_ms: list[int]
    """How long the traffic of each block lasts without faults, with the sizes of this run."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Those that are smaller than the test says."""
    sizes_before: dict[str, int] = field(default_factory=dict[str, int])
    shrunk: dict[str, Shrunk] = field(default_factory=dict[str, Shrunk])
    """By the key of a block: its schedule."""
    runs: int = 0
    complete: bool = True

    @property
    def rows(self) -> dict[str, Any]:
        """The schedules of the blocks of the run."""
        return self.result.schedules

    def schedule(self, key: str) -> Schedule:
        """Return the schedule of one block."""
        return _schedule(self.rows[key])

    def summary(self) -> str:
        """Say how much smaller it is, and what that took."""
        before = sum(shrunk.before for shrunk in self.shrunk.values())
        faults = sum(len(self.schedule(key).steps) for key in self.shrunk)
        words = [f"{before} fault{'s' if before != 1 else ''} shrunk to {faults}"]
        if sizes := smaller_in_words(self.sizes_before, self.sizes):
            words.append(sizes)
        ended = "" if self.complete else "; not finished: --harrow-shrink=N allows more runs"
        return f"{', '.join(words)}, in {self.runs} runs{ended}"


class SeedShrinker:
    """The shrink of one failure; `result` is the smallest so far."""

    def __init__(self, failed: SeedResult, run: RunTest, windows_ms: list[int], runs_most: int) -> None:
        self.result = SmallerFailure(result=failed, windows_ms=windows_ms, sizes_before=dict(failed.sizes))
        self._names = frozenset(failed.failure.split(", "))
        self._run = run
        self._runs_most = runs_most
        self._allowed = 0
        """How many runs the present part may have used at its end."""

    def shrink(self) -> SmallerFailure:
        """Make the failure as small as the runs allow."""
        self._allowed = int(self._runs_most * FAULTS_PART)
        for key in list(self.result.rows):
            self._shrink_faults(key)
        self._allowed = self._runs_most
        try:
            self._shrink_sizes()
        except RunsUsedUpError:
            self.result.complete = False
        return self.result

    def best_words(self) -> str:
        """Say what failed, how small it is so far, and how many runs are left."""
        best = self.result
        faults = sum(len(best.schedule(key).steps) for key in best.rows)
        parts = [f"{faults} fault{'s' if faults != 1 else ''}"]
        parts += [f"{size} {name}" for name, size in best.sizes.items()]
        names = ", ".join(sorted(self._names))
        return f"{names} with {', '.join(parts)}: made smaller in {best.runs} of {self._runs_most} runs"

    # -------------------------------------------------------------------------------------- faults

    def _shrink_faults(self, key: str) -> None:
        schedule = self.result.schedule(key)
        window_ms = self._window_ms(key)
        shrunk = shrink(
            schedule,
            partial(self._try_faults, key, FEWER_FAULTS),
            weaker=partial(self._try_faults, key, WEAKER_FAULTS),
            later=None if window_ms is None else partial(later_by_halves, latest_ms=window_ms),
            later_trial=partial(self._try_later, key),
        )
        self.result.shrunk[key] = shrunk
        self.result.complete &= shrunk.complete

    def _try_faults(self, key: str, tries: Tries, candidate: Schedule) -> Schedule | None:
        for world in range(tries.worlds):
            if self._fails(world, {key: candidate}):
                return self.result.schedule(key)
        if key in self._movable({key: candidate}):
            for moment in range(tries.moments):
                if self._fails(tries.worlds + moment, {key: self._moved(key, candidate, moment)}):
                    return self.result.schedule(key)
        return None

    def _try_later(self, key: str, candidate: Schedule) -> Schedule | None:
        """Try a candidate as it is, and with the step that is later at other moments from there to the end."""
        before = {step.id: step.fired_ms for step in self.result.schedule(key).steps}
        window_ms = self._window_ms(key)
        for number in range(LATER_FAULTS.worlds + LATER_FAULTS.moments):
            tried = candidate
            if number >= LATER_FAULTS.worlds and window_ms is not None:
                rng = random.Random(number)  # noqa: S311 - repeatable, not secret
                moved = (
                    step if step.fired_ms == before[step.id] else _at_a_later_moment(step, window_ms, rng)
                    for step in candidate.steps
                )
                tried = replace(candidate, steps=tuple(moved))
            if self._fails(number, {key: tried}):
                return self.result.schedule(key)
        return None

    def _fails(self, world: int, changed: Mapping[str, Schedule]) -> bool:
        """Run a candidate, and keep it where it fails as the first one did."""
        best = self.result
        rows = {**best.rows, **{key: json.loads(schedule.to_json()) for key, schedule in changed.items()}}
        return self._keep(self._one_run(best.result.seed + world, rows, best.sizes, best.windows_ms))

    def _keep(self, result: SeedResult) -> bool:
        if not self._names & set(result.failure.split(", ")):
            return False
        self.result.result = result
        return True

    def _one_run(
        self, seed: int, rows: Rows, sizes: Mapping[str, int], windows_ms: list[int], *, faultless: bool = False
    ) -> SeedResult:
        if self.result.runs >= self._allowed:
            raise RunsUsedUpError
        self.result.runs += 1
        return self._run(seed, rows, sizes, windows_ms, faultless=faultless)

    def _window_ms(self, key: str) -> int | None:
        number = int(key.rpartition("/")[2])
        windows = self.result.windows_ms
        return windows[number] if number < len(windows) else None

    def _movable(self, schedules: Mapping[str, Schedule]) -> list[str]:
        """Return the blocks whose faults may fire at other moments."""
        return [
            key
            for key, schedule in schedules.items()
            if schedule.steps and self._window_ms(key) is not None and not any(step.after for step in schedule.steps)
        ]

    def _moved(self, key: str, candidate: Schedule, moment: int) -> Schedule:
        window_ms = self._window_ms(key)
        assert window_ms is not None
        return _at_other_moments(candidate, window_ms, random.Random(moment))  # noqa: S311 - repeatable, not secret

    # --------------------------------------------------------------------------------------- sizes

    def _shrink_sizes(self) -> None:
        """Make each size smaller: the numbers of the test's own first, which make each further run cheaper."""
        asked = self.result.sizes_before
        for name in sorted(asked, key=lambda name: (name == BROKERS, name.startswith("partitions "), name)):
            while any(map(partial(self._try_size, name), self._smaller(name))):
                pass

    def _smaller(self, name: str) -> Iterator[int]:
        size = self.result.sizes.get(name, self.result.sizes_before[name])
        least = self.result.result.least_sizes.get(name, 1)
        tried = sorted({max(least, part) for part in (size // 8, size // 4, size // 2, size * 3 // 4)})
        yield from (part for part in tried if part < size)

    def _try_size(self, name: str, size: int) -> bool:
        best = self.result
        sizes = {**best.sizes, name: size}
        quiet = self._one_run(best.result.seed, {}, sizes, [], faultless=True)
        if quiet.outcome != PASSED:
            return False
        before = best.windows_ms
        best.windows_ms = quiet.blocks_ms
        schedules = {key: with_roles(best.schedule(key)) for key in best.rows}  # other brokers lead other partitions
        movable = self._movable(schedules)
        for moment in range(SMALLER_SIZES.worlds + SMALLER_SIZES.moments):
            changed = dict(schedules)
            if moment >= SMALLER_SIZES.worlds:
                changed.update({key: self._moved(key, schedules[key], moment) for key in movable})
            rows = {key: json.loads(schedule.to_json()) for key, schedule in changed.items()}
            if self._keep(self._one_run(best.result.seed + moment, rows, sizes, best.windows_ms)):
                best.sizes = sizes
                return True
        best.windows_ms = before
        return False


def _at_other_moments(schedule: Schedule, window_ms: int, rng: random.Random) -> Schedule:
    """Return a schedule with its faults anywhere in the traffic, one after the other."""
    share_ms = window_ms // len(schedule.steps)

    def moved(step: ScheduledFault) -> ScheduledFault:
        at_ms, frames = rng.randint(0, share_ms), rng.randint(0, FRAMES_MOST)
        return replace(step, trigger="healed", at_ms=at_ms, frames=frames, fired_ms=None)

    return replace(schedule, steps=tuple(map(moved, schedule.steps)))


def _at_a_later_moment(step: ScheduledFault, window_ms: int, rng: random.Random) -> ScheduledFault:
    """Return a step that fires at another moment between its time and the end of the traffic."""
    assert step.fired_ms is not None
    fired_ms = rng.randint(step.fired_ms, max(step.fired_ms, window_ms))
    return replace(step, fired_ms=fired_ms, frames=rng.randint(0, FRAMES_MOST))


def _schedule(row: Any) -> Schedule:
    return Schedule.from_json(json.dumps(row))
