"""Faults of the network (K2): isolate a broker from its peers, at once, on live connections too.

Applied in the host of the isolated broker, in both directions unless told otherwise: what it would send
and what it is sent is held back. Healing delivers what was held, or resets the connections; the seed
decides unless told. Proof: the host's rules name the peers, and bytes were held back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ConfigError
from .process import start_again
from .spec import Evidence, Fault, Injection, Seconds
from .system import Scene, System
from .targets import Target

DIRECTIONS = ("both", "in", "out")
MODES = ("deliver", "reset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolate(Fault):
    """Cut a broker from the other brokers and the registry (`clients=True`: from clients as well)."""

    kind: ClassVar[str] = "isolate"
    clients: bool = False
    direction: str = "both"
    heals_by: str | None = None

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.direction not in DIRECTIONS:
            raise ConfigError(
                f"isolate(direction={self.direction!r}): expected {', '.join(DIRECTIONS)}"
            )
        if self.heals_by not in (None, *MODES):
            raise ConfigError(f"isolate(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}")

    def draw_details(self, scene: Scene, rng: random.Random) -> dict[str, Any]:
        """Draw how it heals."""
        del scene
        return {"mode": self.heals_by or rng.choice(MODES)}

    def peers_of(self, system: System, node: int) -> list[str]:
        """Name the peers that this broker shall not reach."""
        peers = [f"broker {other}" for other in sorted(system.brokers) if other != node]
        return [*peers, "registry", *(["client *"] if self.clients else [])]

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rules; setting them twice is the same as once."""
        for node in injection.nodes:
            peers = self.peers_of(system, node)
            system.control(node, "links.block", peers=peers, direction=self.direction)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Rules stand, and held something back."""
        answers = {node: system.control(node, "links") for node in injection.nodes}
        proved = all(blocked_peers(answer) and held_back(answer) for answer in answers.values())
        return Evidence(proved=proved, facts={"links": {str(n): a for n, a in answers.items()}})

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
        proved = not any(blocked_peers(answer) for answer in answers.values())
        return Evidence(proved=proved, facts={"links": {str(n): a for n, a in answers.items()}})


def blocked_peers(answer: dict[str, Any]) -> list[Any]:
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
