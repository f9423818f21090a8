"""Faults of what stands beside the brokers, such as a store or a database: `isolate(dependency("store"))` (K2).

`harrow.dependency("store", address)` puts a relay in front of the service. Its links have the rules of a broker's, and
its peers are the clients of the service:

`isolate`    nothing passes between the service and its clients; afterwards what was held back is delivered, or its
             connections are reset (`heals_by`)
`cut`        the same in one direction: "in" (the service receives nothing) or "out" (its clients receive nothing)
`slow_link`  what the service sends arrives `delay_ms` later
`throttle`   the service sends no more than `bytes_per_s` to all its clients together
`half_open`  connections that are open carry nothing any more, and new ones do; at the end they are reset
`reset`      the connections are reset once

`kill`, `pause`, `terminate` and `restart` of a dependency are those of the program of the same name
(`program_faults.py`).

Evidence: rules are in force and hold bytes back, or bytes were sent late; for `reset`, the number of connections. A
client may use the service rarely: the fault waits for it, and fails when none did.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.host.knobs.link_rules import BYTES_PER_S_MOST, DELAY_MS_MOST

from .client_faults import NamedFault, checked_name, listed
from .controls import LinkControl, LinkStatus
from .errors import ConfigError, TargetError, nearest
from .evidence import Evidence
from .network_faults import CLIENTS, MODES, SLOW_LINK_MS, THROTTLE_BYTES_PER_S, BytesPerSecond
from .spec import FaultState, Hold, Injection, Milliseconds, Seconds, amount_within, least_and_most
from .system import ClusterSnapshot, System

PEERS = (CLIENTS,)


@dataclass(slots=True, kw_only=True)
class DependencyState(FaultState):
    """Whether the fault has begun."""

    hit: int = 0
    """How many connections it hit, or 1 where it set rules; 0 before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyFault(NamedFault):
    """A fault of the links of one dependency."""

    needs: ClassVar[frozenset[str]] = frozenset({"dependencies"})
    state_type: ClassVar[type[FaultState]] = DependencyState
    waits_for_traffic: ClassVar[bool] = True
    touches_programs: ClassVar[bool] = True
    named_by: ClassVar[str] = "dependency"
    written: ClassVar[str]
    """The function that makes it."""
    dependency: str | None = None

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        if self.dependency is not None:
            checked_name(self.dependency, self.kind, "dependency")

    def __str__(self) -> str:
        given = self.parameters()
        name = given.pop("dependency", None)
        words = [f"{field}={value!r}" for field, value in given.items()]
        return f"{self.written}({', '.join([f'dependency({name!r})' if name else 'dependency', *words])})"

    def check_system(self, system: System) -> None:
        """Raise ConfigError for a dependency that does not exist, or where there is none to draw."""
        names = system.dependencies
        example = f"harrow.dependency({self.dependency or 'store'!r}, '127.0.0.1:6379')"
        if self.dependency is None and not names:
            raise ConfigError(f"{self}: there is no dependency; make one first: {example}")
        if self.dependency is not None and self.dependency not in names:
            raise ConfigError(
                f"{self}: there is no dependency {self.dependency!r}{nearest(self.dependency, names)}; dependencies: "
                f"{listed(names)}. Make it before the faults begin: {example}"
            )

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the dependency where none is named."""
        if self.dependency is not None:
            return {"dependency": self.dependency}
        if not snapshot.dependencies:
            raise TargetError(f"{self}: there is no dependency at this moment")
        return {"dependency": rng.choice(snapshot.dependencies)}

    def links_of(self, system: System, injection: Injection) -> LinkControl:
        """Return the links of the dependency that was drawn, or that the fault names."""
        return system.dependencies[str(injection.details.get("dependency", self.dependency))]

    @abc.abstractmethod
    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Set the rules, or hit the connections that are open; 0 where there is none to hit yet."""

    def took_effect(self, status: LinkStatus) -> bool:
        """Whether the rules did something: by default, whether bytes are held back."""
        return status.held > 0

    def inject(self, system: System, injection: Injection) -> None:
        """Begin the fault, once."""
        state = DependencyState.of(injection)
        if not state.hit:
            state.hit = self.begin(self.links_of(system, injection), injection)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Begin it at the first connection that is opened, where none was open before."""
        del now_ms
        self.inject(system, injection)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the rules are in force and did something."""
        status = self.links_of(system, injection).status()
        proved = status.rules > 0 and self.took_effect(status)
        return Evidence(proved=proved, facts=self.facts(injection, status))

    def facts(self, injection: Injection, status: LinkStatus) -> dict[str, Any]:
        """Return what the relay says of the links."""
        name = str(injection.details.get("dependency", self.dependency))
        return {"dependencies": {name: dict(status.facts)}}

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say who was connected, and that nothing was sent."""
        del injection
        (name, found), *_ = facts.get("dependencies", {"?": {}}).items()
        peers = [link["peer"] for link in found.get("links", ()) if link["peer"] != "upstream"]
        if not peers:
            return (
                f"no client was connected to the dependency {name!r}; give the service the address that "
                f"harrow.dependency({name!r}, …) returns"
            )
        return f"no client of the dependency {name!r} sent or received anything; connected: {len(peers)}"

    def heal(self, system: System, injection: Injection) -> None:
        """Remove the rules."""
        if DependencyState.of(injection).hit:
            self.links_of(system, injection).heal(injection.details.get("mode", "deliver"))

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether no rule is left."""
        status = self.links_of(system, injection).status()
        return Evidence(proved=not status.rules, facts=self.facts(injection, status))


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateDependency(DependencyFault):
    """Nothing passes between the dependency and its clients."""

    kind: ClassVar[str] = "isolate_dependency"
    words: ClassVar[str] = "was cut off from its clients"
    holds: ClassVar[Hold | None] = Hold.ISOLATED
    lane_words: ClassVar[str] = "cut off"
    written: ClassVar[str] = "isolate"
    heals_by: str | None = None

    def __post_init__(self) -> None:
        DependencyFault.__post_init__(self)
        if self.heals_by not in (None, *MODES):
            raise ConfigError(f"{self.written}(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}")

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals."""
        drawn = DependencyFault.draw_details(self, snapshot, rng)
        return {**drawn, "mode": self.heals_by or rng.choice(MODES)}

    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Hold back both directions, or that which was drawn."""
        links.block(PEERS, str(injection.details.get("direction", "both")))
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CutDependency(IsolateDependency):
    """Nothing passes in one direction: to the dependency ("in"), or from it ("out")."""

    kind: ClassVar[str] = "cut_dependency"
    words: ClassVar[str] = "was cut off from its clients in one direction"
    lane_words: ClassVar[str] = "cut off one way"
    written: ClassVar[str] = "cut"
    direction: str | None = None

    @classmethod
    def words_for(cls, details: Mapping[str, Any]) -> str:
        """Say what the direction means for the dependency."""
        by_direction = {"in": "received nothing from its clients", "out": "could send nothing to its clients"}
        return by_direction.get(str(details.get("direction")), cls.words)

    def __post_init__(self) -> None:
        IsolateDependency.__post_init__(self)
        if self.direction not in ("in", "out", None):
            raise ConfigError(f"cut(direction={self.direction!r}): expected in, out or None")

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals, and the direction."""
        drawn = IsolateDependency.draw_details(self, snapshot, rng)
        return {**drawn, "direction": self.direction or rng.choice(("in", "out"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDependency(DependencyFault):
    """What the dependency sends arrives late."""

    kind: ClassVar[str] = "slow_dependency"
    words: ClassVar[str] = "sent late"
    holds: ClassVar[Hold | None] = Hold.SLOW
    written: ClassVar[str] = "slow_link"
    delay_ms: Milliseconds = SLOW_LINK_MS

    def __post_init__(self) -> None:
        DependencyFault.__post_init__(self)
        amount = amount_within(self.delay_ms, DELAY_MS_MOST, "slow_link(delay_ms")
        object.__setattr__(self, "delay_ms", amount)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the delay."""
        drawn = DependencyFault.draw_details(self, snapshot, rng)
        return {**drawn, "delay_ms": round(rng.uniform(*least_and_most(self.delay_ms)))}

    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Delay what is sent to its clients."""
        links.slow(PEERS, int(injection.details["delay_ms"]))
        return 1

    def took_effect(self, status: LinkStatus) -> bool:
        """Whether bytes were sent late."""
        return status.delayed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleDependency(DependencyFault):
    """The dependency sends slowly."""

    kind: ClassVar[str] = "throttle_dependency"
    words: ClassVar[str] = "sent slowly"
    holds: ClassVar[Hold | None] = Hold.SLOW
    lane_words: ClassVar[str] = "throttled"
    written: ClassVar[str] = "throttle"
    bytes_per_s: BytesPerSecond = THROTTLE_BYTES_PER_S

    def __post_init__(self) -> None:
        DependencyFault.__post_init__(self)
        amount = amount_within(self.bytes_per_s, BYTES_PER_S_MOST, "throttle(bytes_per_s", "bytes a second")
        object.__setattr__(self, "bytes_per_s", amount)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the rate."""
        drawn = DependencyFault.draw_details(self, snapshot, rng)
        return {**drawn, "bytes_per_s": round(rng.uniform(*least_and_most(self.bytes_per_s)))}

    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Limit what is sent to its clients."""
        links.throttle(PEERS, int(injection.details["bytes_per_s"]))
        return 1

    def took_effect(self, status: LinkStatus) -> bool:
        """Whether bytes were sent late."""
        return status.delayed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpenDependency(DependencyFault):
    """The connections that are open carry nothing any more; new ones do."""

    kind: ClassVar[str] = "half_open_dependency"
    words: ClassVar[str] = "had connections that carried nothing any more"
    holds: ClassVar[Hold | None] = Hold.ISOLATED
    lane_words: ClassVar[str] = "half-open"
    written: ClassVar[str] = "half_open"

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """They are reset at the end: what an endpoint does that has forgotten a connection."""
        return {**DependencyFault.draw_details(self, snapshot, rng), "mode": "reset"}

    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Freeze the connections that are open."""
        del injection
        return links.freeze(PEERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetDependency(DependencyFault):
    """The connections with the dependency are reset once; both sides may connect again at once."""

    kind: ClassVar[str] = "reset_dependency"
    words: ClassVar[str] = "lost its connections"
    at_once: ClassVar[bool] = True
    lane_words: ClassVar[str] = "connections were reset"
    written: ClassVar[str] = "reset"
    seconds: Seconds | None = 0.0

    def begin(self, links: LinkControl, injection: Injection) -> int:
        """Reset the connections that are open."""
        del injection
        return links.reset(PEERS)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether connections were reset."""
        status = self.links_of(system, injection).status()
        hit = DependencyState.of(injection).hit
        facts = {**self.facts(injection, status), "reset": hit}
        return Evidence(proved=hit > 0, facts=facts)

    def heal(self, system: System, injection: Injection) -> None:
        """Do nothing: both sides connect again by themselves."""
        del system, injection

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Nothing is left of it."""
        del system, injection
        return Evidence(proved=True)


DEPENDENCY_FAULTS = (
    IsolateDependency,
    CutDependency,
    SlowDependency,
    ThrottleDependency,
    HalfOpenDependency,
    ResetDependency,
)


def of_dependency(kind: type[DependencyFault], name: str, **given: Any) -> DependencyFault:
    """Return the fault of a dependency that a function of `network_faults.py` was asked for.

    `clients` and `peers` are refused: a dependency has clients only.
    """
    clients, peers = given.pop("clients", False), given.pop("peers", "all")
    if clients or peers != "all":
        named = f"clients={clients!r}" if clients else f"peers={peers!r}"
        raise ConfigError(
            f"{kind.written}(dependency({name!r}), {named}): a dependency has clients only; leave {named} out"
        )
    return kind(dependency=name, **given)
