"""Faults of the network (K2): a broker cut off from its peers, or slow to them, at once, on live connections too.

Applied in the host of the broker that is hit. `isolate`: what it would send and what it is sent is held back, in
both directions unless told otherwise; `cut`: in one, which the seed decides unless told. Healing delivers what was
held, or resets the connections; the seed decides unless told. Proof: the host's rules name the peers, and bytes
were held back.

`slow`: what the broker sends leaves later by so many milliseconds, in order and whole. Proof: rules stand, and
bytes left after their delay.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.host.knobs.link_rules import DELAY_MS_MOST

from .errors import ConfigError
from .process import start_again
from .spec import Evidence, Fault, Injection, Seconds, pair_within
from .system import Scene, System
from .targets import Target

DIRECTIONS = ("both", "in", "out")
MODES = ("deliver", "reset")
SLOW_MS = (50, 300)
"""A link across a continent to one that is about to give up; under the session timeout."""

Milliseconds = float | tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault(Fault):
    """A fault that is rules in the hosts of its brokers."""

    clients: bool = False

    def peers_of(self, system: System, node: int) -> list[str]:
        """Name the peers that the rules of this broker concern."""
        peers = [f"broker {other}" for other in sorted(system.brokers) if other != node]
        return [*peers, "registry", *(["client *"] if self.clients else [])]

    def heal(self, system: System, injection: Injection) -> None:
        """Lift the rules where the process lives; a dead one has lost them, and is started."""
        for node in injection.nodes:
            if system.brokers[node].alive:
                mode = injection.details.get("mode", "deliver")
                system.control(node, "links.heal", mode=mode)
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """No rule is left."""
        answers = {node: system.control(node, "links") for node in injection.nodes}
        proved = not any(rules_in(answer) for answer in answers.values())
        return _evidence(proved, answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolate(LinkFault):
    """Cut a broker from the other brokers and the registry (`clients=True`: from clients as well)."""

    kind: ClassVar[str] = "isolate"
    directions: ClassVar[tuple[str | None, ...]] = DIRECTIONS
    direction: str | None = "both"
    heals_by: str | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.direction not in self.directions:
            allowed = ", ".join(map(str, self.directions))
            raise ConfigError(f"{self.kind}(direction={self.direction!r}): expected {allowed}")
        if self.heals_by not in (None, *MODES):
            raise ConfigError(
                f"{self.kind}(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}"
            )

    def draw_details(self, scene: Scene, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals."""
        del scene
        return {"mode": self.heals_by or rng.choice(MODES)}

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules; setting them twice is the same as once."""
        direction = injection.details.get("direction", self.direction)
        for node in injection.nodes:
            peers = self.peers_of(system, node)
            system.control(node, "links.block", peers=peers, direction=direction)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Rules stand, and held something back."""
        answers = {node: system.control(node, "links") for node in injection.nodes}
        proved = all(rules_in(answer) and held_back(answer) for answer in answers.values())
        return _evidence(proved, answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Isolate):
    """Isolate in one direction: a broker that hears and is not heard ("out"), or the reverse ("in")."""

    kind: ClassVar[str] = "cut"
    directions: ClassVar[tuple[str | None, ...]] = ("in", "out", None)
    direction: str | None = None

    def draw_details(self, scene: Scene, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals, and the direction."""
        drawn = Isolate.draw_details(self, scene, rng)
        return {**drawn, "direction": self.direction or rng.choice(("in", "out"))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(LinkFault):
    """What a broker sends to brokers and registry leaves late (`clients=True`: to clients as well)."""

    kind: ClassVar[str] = "slow"
    ms: Milliseconds = SLOW_MS

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        object.__setattr__(self, "ms", _check_ms(self.ms))

    def draw_details(self, scene: Scene, rng: random.Random) -> dict[str, Any]:
        """Draw how late."""
        del scene
        least, most = self.ms if isinstance(self.ms, tuple) else (self.ms, self.ms)
        return {"delay_ms": round(rng.uniform(least, most))}

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules; setting them twice is the same as once."""
        delay_ms = injection.details["delay_ms"]
        for node in injection.nodes:
            peers = self.peers_of(system, node)
            system.control(node, "links.slow", peers=peers, delay_ms=delay_ms)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Rules stand, and something left late."""
        answers = {node: system.control(node, "links") for node in injection.nodes}
        proved = all(rules_in(a) and a.get("delayed_bytes", 0) > 0 for a in answers.values())
        return _evidence(proved, answers)


def _check_ms(ms: object) -> Milliseconds:
    pair = pair_within(ms, 1, DELAY_MS_MOST)
    if pair is None:
        raise ConfigError(
            f"slow(ms={ms!r}): expected milliseconds, or a (least, most) pair, from 1 to {DELAY_MS_MOST}"
        )
    return (pair[0], pair[1]) if isinstance(ms, list | tuple) else pair[0]


def _evidence(proved: bool, answers: dict[int, dict[str, Any]]) -> Evidence:
    return Evidence(proved=proved, facts={"links": {str(n): a for n, a in answers.items()}})


def rules_in(answer: dict[str, Any]) -> list[Any]:
    """Return the rules in a `links` answer."""
    rules: list[Any] = answer.get("rules", [])
    return rules


def held_back(answer: dict[str, Any]) -> bool:
    """Whether a `links` answer shows bytes held back."""
    held: int = answer.get("held_in_bytes", 0) + answer.get("held_out_bytes", 0)
    return held > 0


def isolate(
    target: Target | int,
    *,
    seconds: Seconds | None = None,
    clients: bool = False,
    direction: str = "both",
    heals_by: str | None = None,
) -> Isolate:
    """Cut a broker off for `seconds`: from brokers and registry, with `clients=True` from clients too.

    `direction`: both, in or out; `heals_by`: what was held back is delivered ("deliver") or its
    connections are reset ("reset"); by default the seed decides.
    """
    return Isolate(
        target=target,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
        seconds=seconds,
        clients=clients,
        direction=direction,
        heals_by=heals_by,
    )


def cut(
    target: Target | int,
    *,
    seconds: Seconds | None = None,
    clients: bool = False,
    direction: str | None = None,
    heals_by: str | None = None,
) -> Cut:
    """Cut a broker off in one direction: "in" (it hears nobody), "out" (nobody hears it); else the seed decides."""
    return Cut(
        target=target,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
        seconds=seconds,
        clients=clients,
        direction=direction,
        heals_by=heals_by,
    )


def slow(
    target: Target | int,
    *,
    ms: Milliseconds = SLOW_MS,
    seconds: Seconds | None = None,
    clients: bool = False,
) -> Slow:
    """Delay what a broker sends to brokers and registry by `ms`; with `clients=True` to clients too."""
    return Slow(target=target, ms=ms, seconds=seconds, clients=clients)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
