"""What a search for a failure is: it proposes runs, and may learn from their results.

A search holds no clock and runs nothing itself, so that two searches can be compared with the same seeds and budget.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from harrow.faults.schedule import Schedule

from ..simulation import SimulationResult


class Search(Protocol):
    """One search; a function of its seed and of the results that it has seen."""

    @property
    def wants_coverage(self) -> bool:
        """Whether the results that it is given must say what the run reached."""
        ...

    def propose(self) -> Schedule:
        """Return the next run."""
        ...

    def learn(self, result: SimulationResult) -> None:
        """Take the result of the run that was proposed last."""
        ...


class RandomSearch:
    """Draws one run after the other and learns nothing."""

    wants_coverage = False

    def __init__(self, first_seed: int, plan: Callable[[int], Schedule]) -> None:
        self._seed = first_seed
        self._plan = plan

    def propose(self) -> Schedule:
        """Return the run of the next seed."""
        self._seed += 1
        return self._plan(self._seed - 1)

    def learn(self, result: SimulationResult) -> None:
        """Nothing: the next run does not depend on this one."""
