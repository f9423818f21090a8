"""Network partitions of several brokers (K2): shapes that no single isolated broker has, and half-open connections.

`disconnect`       the links between two targets: a pair of hosts, or a broker and `registry()`
`halves`           two halves that do not reach each other; the registry is on the side of the larger one
                   (`registry_side`: "larger", "smaller", or "both": it reaches all brokers)
`bridge`           two halves that do not reach each other, and one broker that reaches both
`majorities_ring`  each broker receives from a majority of the brokers, and no two from the same one
`half_open`        the open connections of a broker carry nothing any more, without an end (as after a firewall has
                   forgotten them); new connections do. Both sides find out by their own timeouts

The seed draws who is on which side, so that a follower is separated from its leader where there is one. The hosts of
the affected brokers apply rules, as in `network_faults.py`; bridge and ring leave all links with the registry alone.
Healing delivers what was held back or resets its connections (`heals_by`, or what the seed draws). Evidence: rules are
in force on each of these brokers, and on at least one of them bytes are held back, or a connection waits to be opened.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .errors import ConfigError, TargetError
from .evidence import Evidence
from .network_faults import CLIENTS, MODES, REGISTRY_PEER, LinkFault, observed, remove_rules
from .process_faults import hit_once
from .spec import Fault, Hold, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import REGISTRY, Target, all_brokers, as_target

SIDES = ("larger", "smaller", "both")
DRAWS = 20
"""How often sides are drawn until they separate a follower from its leader, and targets until they differ."""

Cuts = dict[str, list[str]]
"""Node id (as in JSON) to the peers from which the node is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Fault):
    """Cuts between brokers that are drawn together."""

    needs: ClassVar[frozenset[str]] = frozenset({"links", "process"})
    words: ClassVar[str] = "was cut off from some brokers"
    direction: ClassVar[str] = "both"
    """Of the rules on each broker."""
    has_fixed_target: ClassVar[bool] = True
    brokers_least: ClassVar[int] = 2
    target: Target = all_brokers
    heals_by: str | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.heals_by not in (None, *MODES):
            raise ConfigError(f"{self.kind}(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}")
        if self.has_fixed_target and self.target != all_brokers:
            raise ConfigError(f"{self.kind}(target={self.target}): it is about all brokers")

    @abc.abstractmethod
    def draw_cuts(self, snapshot: ClusterSnapshot, rng: random.Random) -> Cuts:
        """Draw who is cut off from whom; TargetError where that is not possible at this moment."""

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the cuts, how they heal, and how long they last."""
        if len(snapshot.brokers) < self.brokers_least:
            raise TargetError(
                f"{self}: the cluster has {len(snapshot.brokers)} brokers, and this partition needs "
                f"{self.brokers_least}; start more: @pytest.mark.harrow(brokers={self.brokers_least})"
            )
        cuts = self.draw_cuts(snapshot, rng)
        for _ in range(DRAWS):
            if cuts_replication(cuts, snapshot):
                break
            cuts = self.draw_cuts(snapshot, rng)
        nodes = tuple(sorted(map(int, cuts)))
        if not set(nodes) <= snapshot.running - snapshot.disturbed:
            raise TargetError(f"{self}: brokers {list(nodes)} do not all run undisturbed now")
        return Injection(
            id=id,
            fault=self,
            nodes=nodes,
            duration_ms=self.draw_duration_ms(snapshot, rng),
            details={"cuts": cuts, "mode": self.heals_by or rng.choice(MODES)},
        )

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules."""
        cuts: Mapping[str, Sequence[str]] = injection.details["cuts"]
        known = system.can("registry-links")
        hit_once(
            system,
            injection,
            lambda broker: broker.links.block(
                [peer for peer in cuts[str(broker.node)] if known or peer != REGISTRY_PEER], self.direction
            ),
        )

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether rules are in force, and at least one holds bytes back."""
        return in_force(system, injection)

    def heal(self, system: System, injection: Injection) -> None:
        """Remove the rules of live brokers; a dead broker has lost its rules, and is started."""
        remove_rules(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether no rule is left."""
        return observed(system, injection, lambda status: not status.rules)


def cuts_replication(cuts: Cuts, snapshot: ClusterSnapshot) -> bool:
    """Whether a follower and its leader are on different sides: only then something is sent on the links."""
    pairs = {(f"broker {node}", peer) for node, peers in cuts.items() for peer in peers}
    return any(
        (f"broker {row.leader}", f"broker {node}") in pairs or (f"broker {node}", f"broker {row.leader}") in pairs
        for _, row in snapshot.view.partitions()
        for node in row.replicas
    )


def in_force(system: System, injection: Injection) -> Evidence:
    """Observe whether every broker has rules, and whether bytes are held back on at least one of them."""
    found = observed(system, injection, lambda status: status.rules > 0)
    held = any(system.broker(node).links.status().held for node in injection.nodes)
    return Evidence(proved=found.proved and held, facts=found.facts)


def _names(nodes: Sequence[int]) -> list[str]:
    return [f"broker {node}" for node in nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect(Partition):
    """Cut the links between the brokers of `target` and those of `peer`, or the registry."""

    kind: ClassVar[str] = "disconnect"
    drawable: ClassVar[bool] = False
    has_fixed_target: ClassVar[bool] = False
    peer: Target

    def __post_init__(self) -> None:
        given: Any = self.peer
        peer = Target.from_json(given) if isinstance(given, Mapping) else as_target(given, "peer")  # pyright: ignore[reportUnknownArgumentType] - the border
        object.__setattr__(self, "peer", peer)
        Partition.__post_init__(self)

    def __str__(self) -> str:
        given = [str(self.target), str(self.peer)]
        given += [f"{name}={row!r}" for name, row in self.parameters().items() if name != "peer"]
        return f"{self.kind}({', '.join(given)})"

    def targets(self) -> tuple[Target, ...]:
        """Return both."""
        return (self.target, self.peer)

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return self.needs | ({"registry-links"} if self.peer == REGISTRY else set[str]())

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the peer too."""
        return {**Partition.to_json(self), "peer": self.peer.to_json()}

    def draw_cuts(self, snapshot: ClusterSnapshot, rng: random.Random) -> Cuts:
        """Resolve both targets, to different brokers."""
        if self.peer == REGISTRY:
            return {str(node): [REGISTRY_PEER] for node in self.target.resolve(snapshot, rng)}
        for _ in range(DRAWS):
            nodes = self.target.resolve(snapshot, rng)
            peers = [node for node in self.peer.resolve(snapshot, rng) if node not in nodes]
            if peers:
                return {str(node): _names(peers) for node in nodes}
        raise TargetError(f"{self}: both targets are the same broker at this moment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Halves(Partition):
    """Two halves of the cluster that do not reach each other."""

    kind: ClassVar[str] = "halves"
    drawable: ClassVar[bool] = False
    clients: bool = False
    registry_side: str = "larger"

    def __post_init__(self) -> None:
        Partition.__post_init__(self)
        if self.registry_side not in SIDES:
            raise ConfigError(f"halves(registry_side={self.registry_side!r}): expected {', '.join(SIDES)}")

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return self.needs | ({"client-links"} if self.clients else set[str]())

    def brokers_at_once(self, brokers: int) -> int:
        """Return the size of the half that is cut off from the registry."""
        smaller = brokers // 2
        return brokers - smaller if self.registry_side == "smaller" else smaller

    def draw_cuts(self, snapshot: ClusterSnapshot, rng: random.Random) -> Cuts:
        """Draw the halves; the rules are on the side without the registry."""
        brokers = rng.sample(snapshot.brokers, len(snapshot.brokers))
        count = self.brokers_at_once(len(brokers))
        lone, others = sorted(brokers[:count]), sorted(brokers[count:])
        assert lone and others, f"{self}: {lone} and {others} are no halves of {snapshot.brokers}"
        peers = _names(others)
        if self.registry_side != "both" and snapshot.registry_links:
            peers.append(REGISTRY_PEER)
        return {str(node): [*peers, *([CLIENTS] if self.clients else [])] for node in lone}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge(Partition):
    """Two halves that do not reach each other, and a broker that reaches both."""

    kind: ClassVar[str] = "bridge"
    drawable: ClassVar[bool] = False
    brokers_least: ClassVar[int] = 3

    def brokers_at_once(self, brokers: int) -> int:
        """Return the size of the half whose links are cut."""
        return max(1, (brokers - 1) // 2)

    def draw_cuts(self, snapshot: ClusterSnapshot, rng: random.Random) -> Cuts:
        """Draw the bridge and the halves; every broker keeps its session."""
        _, *brokers = rng.sample(snapshot.brokers, len(snapshot.brokers))
        count = self.brokers_at_once(len(snapshot.brokers))
        assert 0 < count < len(brokers), f"{self}: {count} of {brokers} on one side of the bridge"
        peers = _names(sorted(brokers[count:]))
        return {str(node): list(peers) for node in sorted(brokers[:count])}


@dataclass(frozen=True, slots=True, kw_only=True)
class MajoritiesRing(Partition):
    """Each broker receives from a majority, itself included; each majority is another one."""

    kind: ClassVar[str] = "majorities_ring"
    drawable: ClassVar[bool] = False
    direction: ClassVar[str] = "in"
    brokers_least: ClassVar[int] = 3

    def draw_cuts(self, snapshot: ClusterSnapshot, rng: random.Random) -> Cuts:
        """Draw the order of the ring; a broker receives from those around it."""
        ring = rng.sample(snapshot.brokers, len(snapshot.brokers))
        count = len(ring)
        seen = count // 2 + 1
        cuts: Cuts = {}
        for place, node in enumerate(ring):
            near = {ring[(place - seen // 2 + step) % count] for step in range(seen)}
            assert node in near and len(near) == seen, f"{self}: broker {node} receives from {near} of {ring}"
            cuts[str(node)] = _names(sorted(set(ring) - near))
        return cuts


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfOpen(LinkFault):
    """The open connections of a broker carry nothing any more; new ones do."""

    kind: ClassVar[str] = "half_open"
    words: ClassVar[str] = "had connections that carried nothing any more"
    holds: ClassVar[Hold | None] = Hold.ISOLATED

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """They are reset at the end: what an endpoint does that has forgotten a connection."""
        return {**LinkFault.draw_details(self, snapshot, rng), "mode": "reset"}

    def inject(self, system: System, injection: Injection) -> None:
        """Freeze the connections that are open now."""
        hit_once(system, injection, lambda broker: broker.links.freeze(self.peers_of(system, injection, broker.node)))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether connections are frozen and hold bytes back."""
        return observed(system, injection, lambda status: status.rules > 0 and status.held > 0)


@checked
def disconnect(
    target: Target | int, peer: Target | int, *, seconds: Seconds | None = None, heals_by: str | None = None
) -> Disconnect:
    """Cut the links between two brokers, or between a broker and `registry()`: both directions."""
    if target == REGISTRY:
        target, peer = peer, target
    return Disconnect(
        target=as_target(target, Disconnect.kind),
        peer=as_target(peer, Disconnect.kind),
        seconds=seconds,
        heals_by=heals_by,
    )


@checked
def halves(
    *, seconds: Seconds | None = None, clients: bool = False, registry_side: str = "larger", heals_by: str | None = None
) -> Halves:
    """Split the brokers into two halves; with `clients=True` only the registry's side can be reached by clients."""
    return Halves(seconds=seconds, clients=clients, registry_side=registry_side, heals_by=heals_by)


@checked
def bridge(*, seconds: Seconds | None = None, heals_by: str | None = None) -> Bridge:
    """Split the brokers into two halves with one broker between them that reaches both."""
    return Bridge(seconds=seconds, heals_by=heals_by)


@checked
def majorities_ring(*, seconds: Seconds | None = None, heals_by: str | None = None) -> MajoritiesRing:
    """Let each broker receive from a majority of the brokers only, each from another one."""
    return MajoritiesRing(seconds=seconds, heals_by=heals_by)
