"""A fault: a frozen value that says what goes wrong, to which broker, for how long (K).

    fault.resolve(snapshot, rng)       → Injection: node ids and a duration, drawn by the seed, JSON-able
    fault.inject(system, injection)    begin the fault               (idempotent)
    fault.probe(system, injection)     → Evidence that the fault took effect
    fault.advance(system, inj., now)   the next step of a fault that has several (repeated from injection to healing)
    fault.is_done(injection)           whether such a fault has come to its end
    fault.heal(system, injection)      begin to undo the fault       (idempotent, repeated until it is undone)
    fault.probe_healed(system, inj.)   → Evidence that nothing of the fault is left

None of these functions waits: the nemesis probes repeatedly. A fault reaches the cluster only through `System`. A fault
without a proved effect fails the run, because such a run proves nothing. A fault that waits for a request or for a line
of code (`waits_for_traffic`) takes effect when the broker reaches it. Source: Jepsen's nemesis protocol.
"""

from __future__ import annotations

import abc
import enum
import functools
import random
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

from harrow.cluster.argument_types import check_fields

from .errors import ConfigError, TargetError
from .evidence import Evidence
from .rule_kinds import ArmedRule
from .system import ClusterSnapshot, System
from .targets import DEPENDENCY, REGISTRY, Target, as_target, brokers_at_once

Seconds = float | tuple[float, float]
Milliseconds = float | tuple[float, float]
DURATION_MAX_S = 3600.0
TICK_MS = 10
"""How often a nemesis has a turn."""


class Hold(enum.StrEnum):
    """The state in which a fault holds a broker, a program or a dependency while it lasts."""

    DEAD = "dead"
    PAUSED = "paused"
    ISOLATED = "isolated"
    SLOW = "slow"


MARKS: Mapping[Hold | None, str] = {
    Hold.DEAD: "✕",
    Hold.PAUSED: "‖",
    Hold.ISOLATED: "⊘",
    Hold.SLOW: "≈",
    None: "●",
}


@dataclass(slots=True, kw_only=True)
class FaultState:
    """What a fault has to remember about one injection, until it is healed; it is not recorded.

    A fault that must remember more has a subclass as its `state_type`, and reads it by `OwnState.of(injection)`.
    """

    incarnations: dict[int, int] = field(default_factory=dict[int, int])
    """By broker: the incarnation that was hit."""
    rules: dict[int, ArmedRule] = field(default_factory=dict[int, ArmedRule])
    """By broker: the rule that was armed in it."""
    restarted: list[int] = field(default_factory=list[int])
    """The brokers that healing has restarted."""

    @classmethod
    def of(cls, injection: Injection) -> Self:
        """Return the state of an injection of a fault with this `state_type`."""
        state = injection.state
        assert isinstance(state, cls), f"{injection.fault.kind} has the state {type(state)}, expected {cls}"
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault resolved to concrete brokers (no broker: it targets the registry)."""

    id: str
    fault: Fault
    nodes: tuple[int, ...]
    duration_ms: int
    """How long the fault lasts after its proved effect."""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other parameters that were drawn when it was resolved; a replay uses the same."""
    state: FaultState | None = field(default=None, compare=False, repr=False)
    """What the fault remembers about it (`Fault.state_type`); a copy by `replace` has the same one."""

    def __post_init__(self) -> None:
        if self.state is None:
            object.__setattr__(self, "state", self.fault.state_type())
        assert self.duration_ms >= 0, f"{self.fault} lasts {self.duration_ms} ms"
        assert len(set(self.nodes)) == len(self.nodes), f"{self.fault} hits a broker twice: {self.nodes}"
        assert isinstance(self.state, self.fault.state_type), f"{self.fault} has the state {type(self.state)}"

    def effect_within_ms(self, usual_ms: int) -> int:
        """Return how long its effect may take: the usual time, or longer for a kind that needs it."""
        return max(usual_ms, self.fault.effect_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault(abc.ABC):
    """Base of all faults; see the module's head."""

    IN_WORDS: ClassVar[str] = "a fault such as kill(leader('orders'))"
    kind: ClassVar[str]
    state_type: ClassVar[type[FaultState]] = FaultState
    """The class of what it remembers about one injection (`FaultState`)."""
    needs: ClassVar[frozenset[str]] = frozenset({"process"})
    """Capabilities of the backend (`system.CAPABILITIES`) without which it cannot be injected."""
    waits_for_traffic: ClassVar[bool] = False
    random_weight: ClassVar[int] = 1
    """How often random faults draw this kind beside others: twice as often with 2; at least 1."""
    hides_cluster: ClassVar[bool] = False
    """While the fault lasts the registry does not respond: roles are resolved against the last known view, and the
    healing of other faults may take as long."""
    one_at_a_time: ClassVar[bool] = False
    """Whether it disturbs its brokers one after the other; `disturbed_nodes` then says which."""
    reaches_dead: ClassVar[bool] = False
    """Whether a step that may overlap others (`ScheduledFault.overlaps`) can hit a broker that does not run."""
    has_fixed_target: ClassVar[bool] = False
    """Whether its function takes no target, such as `halves()`."""
    takes_registry: ClassVar[bool] = False
    """Whether `registry()` can be its target."""
    ends_process: ClassVar[bool] = False
    """Whether it ends the process of its brokers, so that their connections end."""
    touches_programs: ClassVar[bool] = False
    """Whether its effect is one on the application itself, such as a program that it ends: it needs no traffic."""
    effect_timeout_ms: ClassVar[int] = 0
    """How long its effect may take at most, where that is longer than usual."""
    drawable: ClassVar[bool] = True
    """Whether random faults may draw it where all its fields have a default."""

    # what reports, causes and searches say of it
    holds: ClassVar[Hold | None] = None
    """In which state it holds what it hit while it lasts; None: in none that a lane shows."""
    words: ClassVar[str] = ""
    """What happened to what it hit, after its name: "was killed". Empty: "was hit by the fault …"."""
    at_once: ClassVar[bool] = False
    """Whether `words` happened at a time; else from a time to a time."""
    moves_leaders: ClassVar[bool] = False
    """Whether another broker may lead its broker's partitions then; causes name such a fault before others."""
    lane_words: ClassVar[str] = ""
    """What the lane of a dependency or a program says while it lasts; empty: `holds`."""
    own_mark: ClassVar[str] = ""
    """Its sign in the picture of the terminal; empty: that of `holds`."""

    target: Target
    seconds: Seconds | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", as_target(self.target, self.kind))
        if self.target == REGISTRY and not self.takes_registry:
            raise ConfigError(
                f"{self.kind}(registry()): the registry can be the target of kill, pause and isolate, and the peer of "
                "disconnect"
            )
        if self.target.role == DEPENDENCY:
            raise ConfigError(
                f"{self.kind}({self.target}): a dependency can be the target of isolate, cut, slow_link, throttle, "
                "half_open and reset, and, where a program has its name, of kill, pause, terminate and restart"
            )
        check_fields(self, self.kind, leave=_targets_of(type(self)))
        object.__setattr__(self, "seconds", _check_seconds(self.seconds, self.kind))

    def __str__(self) -> str:
        given = [] if self.has_fixed_target else [str(self.target)]
        given += [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.kind}({', '.join(given)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the call that makes it, for the examples of Hypothesis."""
        del cycle
        printer.text(str(self))

    @classmethod
    def mark(cls) -> str:
        """Return its sign in the picture of the terminal: one character."""
        return cls.own_mark or MARKS[cls.holds]

    @classmethod
    def words_for(cls, details: Mapping[str, Any]) -> str:
        """Return `words`; `details`: what was drawn for the fault, such as the direction of a cut."""
        del details
        return cls.words

    @classmethod
    def drawn(cls, role: Target, seconds: Seconds | None = None) -> Self:
        """Return a fault of this kind as random schedules draw it: on `role`, and for `seconds` where given."""
        given: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
        if next(row for row in fields(cls) if row.name == "target").default is MISSING:
            given["target"] = role
        return cls(**given)

    @classmethod
    def simulated(cls, role: Target, rng: random.Random) -> Self:
        """Return a fault of this kind as the mix of simulations draws it; `rng` draws its parameters."""
        del rng
        return cls.drawn(role)

    @property
    def disturbs(self) -> bool:
        """Whether its brokers count against the cap."""
        return True

    def targets(self) -> tuple[Target, ...]:
        """Return every target that the fault names."""
        return (self.target,)

    def brokers_at_once(self, brokers: int) -> int:
        """Return how many of `brokers` it disturbs at the same time at most."""
        return 1 if self.one_at_a_time else brokers_at_once(self.target, brokers)

    def disturbed_nodes(self, injection: Injection) -> frozenset[int]:
        """Return the brokers that it disturbs at this moment."""
        return frozenset(injection.nodes)

    @property
    def may_miss(self) -> bool:
        """Whether it may pass without effect, such as a cut of a link on which nothing was sent."""
        return False

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do for this fault with these parameters."""
        return self.needs

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw brokers and duration; TargetError when no broker has the role at this moment."""
        nodes = self.target.resolve(snapshot, rng)
        duration_ms = self.draw_duration_ms(snapshot, rng)
        details = self.draw_details(snapshot, rng)
        return Injection(id=id, fault=self, nodes=nodes, duration_ms=duration_ms, details=details)

    def check_nodes(self, snapshot: ClusterSnapshot, nodes: tuple[int, ...]) -> None:
        """Raise TargetError when a recorded broker cannot be affected at this moment."""
        if not set(nodes) <= snapshot.running:
            raise TargetError(f"{self}: brokers {list(nodes)} do not all run at this moment")

    def draw_duration_ms(self, snapshot: ClusterSnapshot, rng: random.Random) -> int:
        """Return a whole number of milliseconds from `seconds`, or from around the session timeout."""
        if self.seconds is None:
            # On both sides of the session timeout: an outage that no component notices, and an outage that moves
            # leaders.
            low, high = 0.3 * snapshot.session_timeout_ms, 2.5 * snapshot.session_timeout_ms
        else:
            low, high = (1000 * bound for bound in least_and_most(self.seconds))
        assert 0 <= low <= high, f"{self}: a duration from {low} to {high} ms"
        return round(rng.uniform(low, high))

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the other parameters."""
        del snapshot, rng
        return {}

    def check_system(self, system: System) -> None:  # noqa: B027 - most name nothing but targets
        """Raise ConfigError before anything is broken when the fault names something that `system` does not have."""

    @abc.abstractmethod
    def inject(self, system: System, injection: Injection) -> None:
        """Begin the fault; nothing happens to a broker that it has affected already."""

    @abc.abstractmethod
    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the fault took effect."""

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say what happened instead of what a fault waits for (`waits_for_traffic`), by the facts of its probe."""
        del injection, facts
        return "no traffic reached it"

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:  # noqa: B027 - most have no steps
        """Do the next step of a fault that has several; never waits. Called from the injection to the healing."""

    def is_done(self, injection: Injection) -> bool:
        """Whether the fault has come to its end, so that it may be healed when its duration has passed."""
        del injection
        return True

    @abc.abstractmethod
    def heal(self, system: System, injection: Injection) -> None:
        """Begin to undo the fault; no error where nothing was done."""

    @abc.abstractmethod
    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing of the fault is left."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that differ from the defaults, without the target."""
        rows = (row for row in fields(self) if row.name != "target")
        return {r.name: getattr(self, r.name) for r in rows if getattr(self, r.name) != r.default}

    @classmethod
    def recorded(cls, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters of a recorded fault as this version takes them."""
        return parameters

    def to_json(self) -> dict[str, Any]:
        """Return `{"name", "target", …}`; `faults.fault_kinds.fault_from_json` reads it."""
        return {"name": self.kind, "target": self.target.to_json(), **self.parameters()}


@functools.cache
def _targets_of(kind: Any) -> tuple[str, ...]:
    """Return the fields of a kind that are targets: they may be numbers of brokers, and `as_target` checks them."""
    return tuple(row.name for row in fields(kind) if row.type in ("Target", Target))


def pair_within(given: object, least: float, most: float) -> Any | None:
    """`given`, a number or a (least, most) pair, as a pair; None where it is out of order or out of these bounds."""
    pair: Any = tuple(given) if isinstance(given, list | tuple) else (given, given)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - the border
    usable = len(pair) == 2 and all(isinstance(number, int | float) and least <= number <= most for number in pair)
    return pair if usable and pair[0] <= pair[1] else None


def least_and_most(given: float | tuple[float, float]) -> tuple[float, float]:
    """Return a number or a (least, most) pair as a pair, to draw from."""
    return given if isinstance(given, tuple) else (given, given)


def amount_within(
    given: object, most: float, where: str, unit: str = "milliseconds", *, least: float = 1
) -> float | tuple[float, float]:
    """Return `given` as a number or a pair from `least` to `most`; ConfigError names `where` and the unit."""
    pair = pair_within(given, least, most)
    if pair is None:
        bounds = f"from {least} to {most:.0f}" if least else f"up to {most:.0f}"
        raise ConfigError(f"{where}={given!r}): expected {unit}, or a (least, most) pair, {bounds}")
    return (pair[0], pair[1]) if isinstance(given, list | tuple) else pair[0]


def _check_seconds(seconds: object, kind: str) -> Seconds | None:
    if seconds is None:
        return None
    checked = amount_within(seconds, DURATION_MAX_S, f"{kind}(seconds", "seconds", least=0)
    return (float(checked[0]), float(checked[1])) if isinstance(checked, tuple) else checked
