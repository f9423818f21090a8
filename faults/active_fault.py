"""A fault that the nemesis has injected and that is not healed yet: its phase, and its deadline.

    TAKES_EFFECT   it was injected; its effect is not proved
    HOLDS          its effect is proved, and its duration has begun
    HEALS          its healing has begun and is not proved
    OVER           it is healed, or could not be

`NEXT` has the transitions. A fault that has no effect in time goes from TAKES_EFFECT to HEALS.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .schedule import ScheduledFault
from .spec import Injection


class Phase(enum.Enum):
    """Where an injected fault stands; see the module's head."""

    TAKES_EFFECT = enum.auto()
    HOLDS = enum.auto()
    HEALS = enum.auto()
    OVER = enum.auto()


NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.TAKES_EFFECT: frozenset({Phase.HOLDS, Phase.HEALS}),
    Phase.HOLDS: frozenset({Phase.HEALS}),
    Phase.HEALS: frozenset({Phase.OVER}),
    Phase.OVER: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Since when a fault waits for what it acts at (`traffic_wait.py`)."""

    since_ms: int
    flowed_ms: int
    """For how long traffic had been seen in this run at that time."""
    progress: int
    """How often what it waits for had been seen by then."""

    def __post_init__(self) -> None:
        assert self.flowed_ms >= 0, f"traffic was seen for {self.flowed_ms} ms"
        assert self.progress >= 0, f"what a fault waits for was seen {self.progress} times"


@dataclass(slots=True, kw_only=True)
class ActiveFault:
    """A fault that was injected and is not healed yet."""

    step: ScheduledFault
    injection: Injection
    deadline_ms: int
    """For its effect, then for its healing."""
    phase: Phase = Phase.TAKES_EFFECT
    heal_at_ms: int = 0
    """When its duration ends; of a fault that HOLDS."""
    trouble: str = ""
    wait: Wait | None = None
    """Only of a fault that waits for traffic; None before it is first asked."""

    def __post_init__(self) -> None:
        assert self.step.id == self.injection.id, f"step {self.step.id} has the injection {self.injection.id}"
        assert self.step.nodes in (None, self.injection.nodes), f"step {self.step.id} stores brokers that were not hit"

    def enter(self, phase: Phase) -> None:
        """Go on to `phase`, which `NEXT` allows."""
        assert phase in NEXT[self.phase], f"{self.injection.fault} cannot go from {self.phase} to {phase}"
        self.phase = phase

    @property
    def has_begun(self) -> bool:
        """Whether it had its effect, waits for traffic, or is being healed."""
        return self.phase is not Phase.TAKES_EFFECT or self.waits

    @property
    def waits(self) -> bool:
        """Whether its effect is missing, and comes only through traffic."""
        return self.phase is Phase.TAKES_EFFECT and self.injection.fault.waits_for_traffic
