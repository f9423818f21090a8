"""A fault that the nemesis has injected and that is not healed yet: where it stands, and its deadline."""

from __future__ import annotations

from dataclasses import dataclass

from .schedule import ScheduledFault
from .spec import Injection


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Since when a fault waits for what it acts at (`traffic_wait.py`)."""

    since_ms: int
    flowed_ms: int
    """For how long traffic had been seen in this run at that time."""
    progress: int
    """How often what it waits for had been seen by then."""


@dataclass(slots=True, kw_only=True)
class ActiveFault:
    """A fault that was injected and is not healed yet."""

    step: ScheduledFault
    injection: Injection
    deadline_ms: int
    """For its effect, then for its healing."""
    heal_at_ms: int | None = None
    """When its duration ends; None before its effect is proved."""
    healing: bool = False
    trouble: str = ""
    wait: Wait | None = None
    """Only of a fault that waits for traffic; None before it is first asked."""

    @property
    def has_begun(self) -> bool:
        """Whether it had its effect, waits for traffic, or is being healed."""
        return self.healing or self.waits or self.heal_at_ms is not None

    @property
    def waits(self) -> bool:
        """Whether the fault takes effect only through traffic."""
        return self.heal_at_ms is None and self.injection.fault.waits_for_traffic
