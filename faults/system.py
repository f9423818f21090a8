"""What faults may ask of the thing they break: `harrow.cluster.Cluster` gives it, a test's fake too.

Faults know nothing more of a cluster than these protocols and the plain values of `ClusterView`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harrow.cluster.view import ClusterView

DEFAULT_SESSION_TIMEOUT_MS = 1_500
DEFAULT_OFFSETS_PARTITIONS = 50


class BrokerControl(Protocol):
    """One process, a broker's or the registry's."""

    @property
    def pid(self) -> int | None:
        """The process, or the last one."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the process exists, paused or not."""
        ...

    @property
    def state(self) -> str:
        """`starting`, `running`, `paused` or `dead`."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        ...

    def lose_power(self, *, seed: int | str, keep: float | None = None) -> dict[str, int]:
        """SIGKILL, then roll its files back to what was fsynced; what that took."""
        ...

    def terminate(self) -> None:
        """SIGTERM, and wait until it is gone."""
        ...

    def pause(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        ...

    def resume(self) -> None:
        """SIGCONT, and wait until it runs."""
        ...

    def start(self) -> None:
        """Start it and wait until it serves; no-op while it is alive."""
        ...


class Settings(Protocol):
    """The settings that the brokers run with."""

    def number(self, name: str) -> int:
        """A number by Kafka's name."""
        ...


class System(Protocol):
    """A cluster that can be broken."""

    @property
    def brokers(self) -> Mapping[int, BrokerControl]:
        """Every broker by node id, dead ones too."""
        ...

    @property
    def registry(self) -> BrokerControl:
        """The registry's process; ClusterError where it is a ZooKeeper."""
        ...

    @property
    def config(self) -> Settings:
        """What they run with."""
        ...

    def describe(self) -> ClusterView:
        """Leaders, ISRs, controller."""
        ...

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on a broker's control socket; ClusterError when it does not answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The cluster at one moment, as targets and faults resolve against it."""

    view: ClusterView
    brokers: tuple[int, ...]
    running: frozenset[int]
    """Brokers that could be hit: alive and not paused."""
    session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    offsets_partitions: int = DEFAULT_OFFSETS_PARTITIONS
    disturbed: frozenset[int] = field(default=frozenset())
    """Brokers that a fault holds already."""


def look_at(system: System, disturbed: frozenset[int] = frozenset()) -> Scene:
    """Take the scene now; ClusterError while the registry does not answer."""
    return Scene(
        view=system.describe(),
        brokers=tuple(sorted(system.brokers)),
        running=frozenset(n for n, one in system.brokers.items() if one.state == "running"),
        session_timeout_ms=system.config.number("zookeeper.session.timeout.ms"),
        offsets_partitions=system.config.number("offsets.topic.num.partitions"),
        disturbed=disturbed,
    )
