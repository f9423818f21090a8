"""Faults of the registry's process (K1, D3): killed and started again, paused.

They affect no broker: an injection has no nodes and does not count against the cap. While the fault lasts the registry
does not respond (`Fault.hides_cluster`). The evidence is that of a broker's process; healed: the registry runs and
responds. Needs the capability `registry`: a ZooKeeper is not Harrow's to kill.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from harrow.cluster.argument_types import checked

from .controls import DEAD, PAUSED, RUNNING, ProcessControl
from .errors import ConfigError, TargetError
from .evidence import Evidence
from .process_faults import is_over
from .spec import Fault, FaultState, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import REGISTRY, Target


@dataclass(slots=True, kw_only=True)
class RegistryState(FaultState):
    """The incarnation of the registry that was hit."""

    hit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFault(Fault):
    """A fault whose target is the registry."""

    needs: ClassVar[frozenset[str]] = frozenset({"registry"})
    hides_cluster: ClassVar[bool] = True
    has_fixed_target: ClassVar[bool] = True
    takes_registry: ClassVar[bool] = True
    state_type: ClassVar[type[FaultState]] = RegistryState
    target: Target = REGISTRY

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.target != REGISTRY:
            raise ConfigError(f"{self.kind}(target={self.target}): it hits only the registry")

    @property
    def disturbs(self) -> bool:
        """No broker is down."""
        return False

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw how long; there is no broker to draw. TargetError while the registry is away already."""
        self.check_nodes(snapshot, ())
        duration_ms = self.draw_duration_ms(snapshot, rng)
        return Injection(id=id, fault=self, nodes=(), duration_ms=duration_ms)

    def check_nodes(self, snapshot: ClusterSnapshot, nodes: tuple[int, ...]) -> None:
        """Raise TargetError while the registry does not run."""
        del nodes
        if not snapshot.registry_runs:
            raise TargetError(f"{self}: the registry does not run at this moment")

    def hit(self, process: ProcessControl) -> None:
        """Do it to the process."""
        raise NotImplementedError

    def inject(self, system: System, injection: Injection) -> None:
        """Hit the registry once."""
        status = system.registry.status()
        state = RegistryState.of(injection)
        if state.hit is None and status.state != DEAD:
            state.hit = status.incarnation
            self.hit(system.registry)

    def heal(self, system: System, injection: Injection) -> None:
        """Resume it, or start it."""
        del injection
        state = system.registry.status().state
        if state == PAUSED:
            system.registry.resume()
        elif state == DEAD:
            system.registry.start()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the registry runs and responds."""
        del injection
        status = system.registry.status()
        if status.state != RUNNING:
            return Evidence(proved=False, facts=status.to_json())
        live = sorted(system.describe().live)
        return Evidence(proved=True, facts={**status.to_json(), "live": live})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRegistry(RegistryFault):
    """SIGKILL; healed by starting it again: sessions and nodes come from its log."""

    kind: ClassVar[str] = "restart_registry"
    own_mark: ClassVar[str] = "↻"

    def hit(self, process: ProcessControl) -> None:
        """Kill it."""
        process.kill()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the incarnation that was hit is over."""
        status = system.registry.status()
        incarnation = RegistryState.of(injection).hit
        return Evidence(proved=incarnation is not None and is_over(status, incarnation), facts=status.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRegistry(RegistryFault):
    """SIGSTOP, later SIGCONT.

    After a pause that is longer than the sessions, the registry must ask who is still there.
    """

    kind: ClassVar[str] = "pause_registry"
    own_mark: ClassVar[str] = "‖"

    def hit(self, process: ProcessControl) -> None:
        """Pause it."""
        process.pause()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether it is paused."""
        status = system.registry.status()
        proved = RegistryState.of(injection).hit is not None and status.state == PAUSED
        return Evidence(proved=proved, facts=status.to_json())


@checked
def restart_registry(*, seconds: Seconds | None = None) -> RestartRegistry:
    """SIGKILL the registry; started again after `seconds` (default: around the session timeout)."""
    return RestartRegistry(seconds=seconds)


@checked
def pause_registry(*, seconds: Seconds | None = None) -> PauseRegistry:
    """SIGSTOP the registry for `seconds` (default: drawn from both sides of the session timeout)."""
    return PauseRegistry(seconds=seconds)
