"""A fault that the nemesis has injected and that is not healed yet: where it stands, and its deadline."""

from __future__ import annotations

from dataclasses import dataclass

from .schedule import ScheduledFault
from .spec import Injection


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

    @property
    def waits(self) -> bool:
        """Whether the fault takes effect only through traffic."""
        return self.heal_at_ms is None and self.injection.fault.waits_for_traffic
