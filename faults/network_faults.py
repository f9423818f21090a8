"""Faults of the network (K2): isolate a broker from its peers, delay or limit what it sends, reset its connections.

The host of the affected broker applies them at once, to open and to new connections.

`isolate`    holds back what the broker sends and what its peers send to it: both directions, or only `direction`
`cut`        the same in one direction: `direction`, or the direction that the seed draws
`slow_link`  sends the broker's frames `delay_ms` later, in order and whole
`throttle`   sends no more than `bytes_per_s` to all its peers together; frames leave in order and whole
`reset`      resets the broker's connections once; both sides may connect again at once

Peers are the other brokers and the registry, or the other nodes of a KRaft cluster; `clients=True` adds the clients;
`peers="clients"` means the clients only, for backends that do not control the links between brokers; `peers="any"`
means a single peer that the seed draws; `peers="registry"` the registry only.
Healing delivers the held bytes or resets their connections: `heals_by`, or what the seed draws.

Evidence. `isolate` and `cut`: rules are in force and hold bytes back. `slow_link` and `throttle`: rules are in force
and at least one frame was sent late. `reset`: the number of connections. A fault of a single link may have no effect
(`may_miss`), because no component may send on that link.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from harrow.cluster.host.knobs.link_rules import BYTES_PER_S_MOST, DELAY_MS_MOST

from .controls import DEAD, LinkStatus
from .errors import ConfigError
from .evidence import Evidence
from .process_faults import hit_once, start_again
from .spec import Fault, FaultState, Hold, Injection, Milliseconds, Seconds, amount_within, least_and_most
from .system import Broker, ClusterSnapshot, System
from .targets import Target

DIRECTIONS = ("both", "in", "out")
MODES = ("deliver", "reset")
PEERS = ("all", "any", "clients", "registry")
CLIENTS = "client *"
REGISTRY_PEER = "registry"
BytesPerSecond = float | tuple[float, float]
THROTTLE_BYTES_PER_S = (20_000, 200_000)
"""Less than the replication of a busy partition needs, more than heartbeats need."""
SLOW_LINK_MS = (50, 300)
"""From a link across a continent to a link that is about to fail; below the session timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault(Fault):
    """A fault of the links between its brokers and their peers."""

    needs: ClassVar[frozenset[str]] = frozenset({"links", "process"})
    clients: bool = False
    peers: str = "all"

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.peers not in PEERS:
            raise ConfigError(f"{self.kind}(peers={self.peers!r}): expected {', '.join(PEERS)}")

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do: control the links with clients, with brokers, or both."""
        if self.peers == "clients":
            return frozenset({"client-links"})
        if self.peers == "registry":
            return self.needs | {"registry-links"}
        return self.needs | ({"client-links"} if self.clients else frozenset[str]())

    @property
    def may_miss(self) -> bool:
        """A single link may be idle."""
        return self.peers == "any"

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the peer where the fault affects a single link."""
        if self.peers != "any":
            return {}
        return {"peer": rng.choice(_peers(snapshot.brokers, registry=snapshot.registry_links))}

    def peers_of(self, system: System, injection: Injection, node: int) -> list[str]:
        """Name the peers of this broker that the fault affects."""
        if self.peers == "clients":
            return [CLIENTS]
        if self.peers == "registry":
            return [REGISTRY_PEER]
        peers = _peers(system.nodes, registry=system.can("registry-links"))
        drawn: str = injection.details.get("peer", "")
        named = [drawn] if drawn else peers
        others = [peer for peer in named if peer != f"broker {node}"]
        # a broker has no link to itself: the peer before it is taken
        others = others or [peers[peers.index(drawn) - 1]]
        return [*others, *([CLIENTS] if self.clients else [])]

    def heal(self, system: System, injection: Injection) -> None:
        """Remove the rules of live brokers; a dead broker has lost its rules, and is started."""
        remove_rules(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether no rule is left."""
        return observed(system, injection, lambda status: not status.rules)


def remove_rules(system: System, injection: Injection) -> None:
    """Remove the rules of live brokers, and start dead brokers."""
    mode: str = injection.details.get("mode", "deliver")
    for node in injection.nodes:
        broker = system.broker(node)
        if broker.status().state != DEAD and node in FaultState.of(injection).incarnations:
            broker.links.heal(mode)
    start_again(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolate(LinkFault):
    """Cut a broker off from the other brokers and the registry (`clients=True`: from clients as well)."""

    kind: ClassVar[str] = "isolate"
    words: ClassVar[str] = "was isolated"
    holds: ClassVar[Hold | None] = Hold.ISOLATED
    moves_leaders: ClassVar[bool] = True
    directions: ClassVar[tuple[str | None, ...]] = DIRECTIONS
    direction: str | None = "both"
    heals_by: str | None = None

    def __post_init__(self) -> None:
        LinkFault.__post_init__(self)
        if self.direction not in self.directions:
            allowed = ", ".join(map(str, self.directions))
            raise ConfigError(f"{self.kind}(direction={self.direction!r}): expected {allowed}")
        if self.heals_by not in (None, *MODES):
            raise ConfigError(f"{self.kind}(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}")

    @classmethod
    def simulated(cls, role: Target, rng: random.Random) -> Self:
        """Draw its parameters as well."""
        return cls(target=role, clients=rng.random() < 0.5)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals."""
        drawn = LinkFault.draw_details(self, snapshot, rng)
        return {**drawn, "mode": self.heals_by or rng.choice(MODES)}

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules."""
        direction = str(injection.details.get("direction", self.direction))
        hit_once(
            system,
            injection,
            lambda broker: broker.links.block(self.peers_of(system, injection, broker.node), direction),
        )

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether rules are in force and hold bytes back."""
        return observed(system, injection, lambda status: status.rules > 0 and status.held > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWayCut(Isolate):
    """Isolate in one direction: its peers receive nothing ("out"), or it receives nothing ("in")."""

    kind: ClassVar[str] = "cut"
    words: ClassVar[str] = "was cut off in one direction"
    directions: ClassVar[tuple[str | None, ...]] = ("in", "out", None)
    direction: str | None = None

    @classmethod
    def simulated(cls, role: Target, rng: random.Random) -> Self:
        """Draw its parameters as well."""
        return cls(target=role, peers=rng.choice(("any", "all")))

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals, and the direction."""
        drawn = Isolate.draw_details(self, snapshot, rng)
        return {**drawn, "direction": self.direction or rng.choice(("in", "out"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(LinkFault):
    """A broker sends late to brokers and registry (`clients=True`: to clients as well)."""

    kind: ClassVar[str] = "slow_link"
    words: ClassVar[str] = "had slow links"
    holds: ClassVar[Hold | None] = Hold.SLOW
    delay_ms: Milliseconds = SLOW_LINK_MS

    def __post_init__(self) -> None:
        LinkFault.__post_init__(self)
        checked = amount_within(self.delay_ms, DELAY_MS_MOST, "slow_link(delay_ms")
        object.__setattr__(self, "delay_ms", checked)

    @classmethod
    def simulated(cls, role: Target, rng: random.Random) -> Self:
        """Draw its parameters as well."""
        return cls(target=role, delay_ms=rng.choice((30.0, 150.0, 600.0)), peers=rng.choice(("any", "all")))

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the delay."""
        drawn = LinkFault.draw_details(self, snapshot, rng)
        return {**drawn, "delay_ms": round(rng.uniform(*least_and_most(self.delay_ms)))}

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules."""
        delay_ms = int(injection.details["delay_ms"])
        hit_once(
            system, injection, lambda broker: broker.links.slow(self.peers_of(system, injection, broker.node), delay_ms)
        )

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether rules are in force and at least one frame was sent late."""
        return observed(system, injection, lambda status: status.rules > 0 and status.delayed > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(LinkFault):
    """A broker sends slowly to brokers and registry (`clients=True`: to clients as well)."""

    kind: ClassVar[str] = "throttle"
    words: ClassVar[str] = "sent slowly"
    holds: ClassVar[Hold | None] = Hold.SLOW
    bytes_per_s: BytesPerSecond = THROTTLE_BYTES_PER_S

    def __post_init__(self) -> None:
        LinkFault.__post_init__(self)
        checked = amount_within(self.bytes_per_s, BYTES_PER_S_MOST, "throttle(bytes_per_s", "bytes a second")
        object.__setattr__(self, "bytes_per_s", checked)

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the rate."""
        drawn = LinkFault.draw_details(self, snapshot, rng)
        return {**drawn, "bytes_per_s": round(rng.uniform(*least_and_most(self.bytes_per_s)))}

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules."""
        rate = int(injection.details["bytes_per_s"])
        hit_once(
            system, injection, lambda broker: broker.links.throttle(self.peers_of(system, injection, broker.node), rate)
        )

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether rules are in force and at least one frame was sent late."""
        return observed(system, injection, lambda status: status.rules > 0 and status.delayed > 0)


@dataclass(slots=True, kw_only=True)
class ResetState(FaultState):
    """How many connections were reset, by broker."""

    counts: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(LinkFault):
    """Reset a broker's connections once (`clients=True`: those of clients as well); there is nothing to heal."""

    state_type: ClassVar[type[FaultState]] = ResetState
    kind: ClassVar[str] = "reset"
    words: ClassVar[str] = "lost its connections"
    at_once: ClassVar[bool] = True
    seconds: Seconds | None = 0.0

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False

    @classmethod
    def simulated(cls, role: Target, rng: random.Random) -> Self:
        """Draw its parameters as well."""
        return cls(target=role, clients=rng.random() < 0.5)

    def inject(self, system: System, injection: Injection) -> None:
        """Reset them, once on each broker."""
        counts = ResetState.of(injection).counts

        def act(broker: Broker) -> None:
            counts[str(broker.node)] = broker.links.reset(self.peers_of(system, injection, broker.node))

        hit_once(system, injection, act)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether connections were reset on every broker."""
        del system
        counts = ResetState.of(injection).counts
        proved = bool(counts) and all(counts.values())
        return Evidence(proved=proved, facts={"reset": dict(counts)})

    def heal(self, system: System, injection: Injection) -> None:
        """Do nothing: both sides connect again by themselves."""
        del system, injection

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Nothing is left of it."""
        del system, injection
        return Evidence(proved=True)


def _peers(nodes: Iterable[int], *, registry: bool) -> list[str]:
    """Name the brokers and the registry; the voters of a KRaft quorum are the brokers themselves."""
    return [*(f"broker {node}" for node in nodes), *(["registry"] if registry else [])]


def observed(system: System, injection: Injection, holds: Callable[[LinkStatus], bool]) -> Evidence:
    """Observe whether something holds of the links of every affected broker."""
    found = {node: system.broker(node).links.status() for node in injection.nodes}
    facts = {str(node): dict(status.facts) for node, status in found.items()}
    return Evidence(proved=all(map(holds, found.values())), facts={"links": facts})
