"""Faults of the registry's process (K1, D3): killed and started again, paused.

They hit no broker: an injection has no nodes and counts against no cap. While one lasts nobody can say who leads, and
a broker that starts would wait for the registry: so the nemesis neither fires nor heals anything else meanwhile
(`Fault.hides_cluster`).

Proofs come from the operating system as a broker's do; healed is a registry that runs and answers.
What may fail: FaultError where the cluster's registry is a ZooKeeper, which is not ours to kill.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from harrow.cluster.errors import ClusterError

from .errors import ConfigError, FaultError
from .process import gone, process_state
from .spec import Evidence, Fault, Injection, Seconds
from .system import BrokerControl, Scene, System
from .targets import Target, registry


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryFault(Fault):
    """A fault whose target is the registry."""

    hides_cluster: ClassVar[bool] = True
    target: Target = registry

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.target != registry:
            raise ConfigError(f"{self.kind}(target={self.target}): it hits the registry alone")

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(f'{n}={v!r}' for n, v in self.parameters().items())})"

    @property
    def disturbs(self) -> bool:
        """No broker is down."""
        return False

    def resolve(self, scene: Scene, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw how long; there is nobody to draw."""
        duration_ms = self.draw_duration_ms(scene, rng)
        return Injection(id=id, fault=self, nodes=(), duration_ms=duration_ms)

    def hit(self, process: BrokerControl) -> None:
        """Do it to the process."""
        raise NotImplementedError

    def inject(self, system: System, injection: Injection) -> None:
        """Hit the registry once."""
        process = registry_of(system)
        if process is None:
            raise FaultError(
                f"{self}: this cluster's registry is a ZooKeeper, no process of Harrow's; leave zookeeper.connect "
                "empty, or break the ZooKeeper yourself"
            )
        if "pid" not in injection.notes:
            injection.notes["pid"] = process.pid
            self.hit(process)

    def heal(self, system: System, injection: Injection) -> None:
        """Let it go on, or start it; returns when it serves."""
        del injection
        process = registry_of(system)
        if process is not None:
            if process.alive:
                process.resume()
            else:
                process.start()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """It runs and answers."""
        del injection
        process = registry_of(system)
        if process is None:
            return Evidence(proved=True)
        if process.state != "running":
            return Evidence(proved=False, facts={"state": process.state, "pid": process.pid})
        live = sorted(system.describe().live)
        return Evidence(proved=True, facts={"state": "running", "pid": process.pid, "live": live})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRegistry(RegistryFault):
    """SIGKILL; healed by starting it again: sessions and nodes come from its log."""

    kind: ClassVar[str] = "restart_registry"

    def hit(self, process: BrokerControl) -> None:
        """Kill it."""
        process.kill()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Gone from the process table."""
        del system
        pid: int | None = injection.notes.get("pid")
        state = process_state(pid) or "gone"
        proved = pid is not None and gone(pid)
        return Evidence(proved=proved, facts={"pid": pid, "process": state})


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRegistry(RegistryFault):
    """SIGSTOP, later SIGCONT: past the brokers' sessions it has to ask itself who is still there."""

    kind: ClassVar[str] = "pause_registry"

    def hit(self, process: BrokerControl) -> None:
        """Stop it."""
        process.pause()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """State T in the process table."""
        del system
        pid: int | None = injection.notes.get("pid")
        state = process_state(pid) if pid is not None else ""
        return Evidence(proved=state in ("T", "t"), facts={"pid": pid, "process": state})


def registry_of(system: System) -> BrokerControl | None:
    """Return the registry's process; None where it is a ZooKeeper."""
    try:
        return system.registry
    except ClusterError:
        return None


def restart_registry(*, seconds: Seconds | None = None) -> RestartRegistry:
    """SIGKILL the registry; started again after `seconds` (default: around the session timeout)."""
    return RestartRegistry(seconds=seconds)


def pause_registry(*, seconds: Seconds | None = None) -> PauseRegistry:
    """SIGSTOP the registry for `seconds` (default: drawn from both sides of the session timeout)."""
    return PauseRegistry(seconds=seconds)
