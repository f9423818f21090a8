"""`kill_service(service("billing"))`: SIGKILL to a process of the user's, which is started again when the fault heals.

Evidence: the process that was hit has ended. Healed: the service runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harrow.faults import Evidence, FaultState, Injection, OutsideFault, System, Target, TargetError
from harrow.faults.spec import Seconds

from .services import RUNNING, Service

SERVICE = "service"


def service(name: str) -> Target:
    """Return the service with this name, which runs when the fault fires."""
    return Target(role=SERVICE, name=name)


BILLING = service("billing")
"""Random faults kill this service: `harrow.chaos(kinds=["kill_service"])`."""


@dataclass(slots=True, kw_only=True)
class KillState(FaultState):
    """How often the service had been started when it was hit."""

    starts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KillService(OutsideFault):
    """SIGKILL to a service."""

    kind: ClassVar[str] = "kill_service"
    state_type: ClassVar[type[FaultState]] = KillState
    target: Target = BILLING

    @property
    def service(self) -> Service:
        """The service; TargetError where none has this name."""
        if self.target.name not in RUNNING:
            raise TargetError(f"{self}: no service {self.target.name!r} runs; there are {sorted(RUNNING)}")
        return RUNNING[self.target.name]

    def check_ready(self) -> None:
        """Raise TargetError while the service does not run."""
        if not self.service.alive:
            raise TargetError(f"{self}: the service does not run at this moment")

    def inject(self, system: System, injection: Injection) -> None:
        """Kill it once."""
        state = KillState.of(injection)
        if state.starts is None:
            state.starts = self.service.starts
            self.service.kill()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the process that was hit has ended."""
        hit = KillState.of(injection).starts
        over = hit is not None and (not self.service.alive or self.service.starts > hit)
        return Evidence(proved=over, facts={"starts": self.service.starts})

    def heal(self, system: System, injection: Injection) -> None:
        """Start it again."""
        self.service.start()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the service runs."""
        return Evidence(proved=self.service.alive, facts={"starts": self.service.starts})


def kill_service(target: Target, *, seconds: Seconds | None = None) -> KillService:
    """Kill a service, and start it again after `seconds`."""
    return KillService(target=target, seconds=seconds)
