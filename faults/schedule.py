"""When what goes wrong: steps as plain values, replayable from JSON (K9).

A step fires `at_ms` after its trigger: `traffic` (the first traffic on the topics under test) or
`healed` (the step before it is healed; the first step then counts from the traffic). It lasts
`duration_ms` from its proved effect; None lets the fault draw it. When it fired, what was resolved
(`nodes`, `duration_ms`, `details`, `fired_ms`) is written into it, and a replay uses exactly that.

`random_schedule` draws a whole schedule from a seed, in the manner of swarm testing (Groce et al.,
ISSTA 2012): which kinds of fault take part is itself drawn.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .disk import PowerLoss
from .errors import ConfigError
from .network import Cut, Isolate, Slow
from .process import Kill, Pause, Restart, Terminate
from .registry import fault_from_json
from .registry_process import PauseRegistry, RegistryFault, RestartRegistry
from .spec import Fault, Injection, Seconds
from .targets import Target, TopicLike, controller, follower, group_coordinator, leader, one

SCHEMA_VERSION = 1
TRIGGERS = ("traffic", "healed")
GAP_MS = (0, 400)
"""Between two faults that were given without times: long enough for traffic to go on again."""
FIRST_GAP_MS = (0, 60)
"""Before the first one: short, for a short workload shall meet it."""
OVERLAP_MS = (100, 1200)
"""Between the beginnings of faults that may overlap; they last about two seconds on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fault and its time."""

    id: str
    fault: Fault
    at_ms: int = 0
    trigger: str = "healed"
    required: bool = True
    """Whether the run fails when it could not fire (nobody in that role, the cap, the end)."""
    nodes: tuple[int, ...] | None = None
    duration_ms: int | None = None
    details: Mapping[str, Any] | None = None
    fired_ms: int | None = None
    """When it fired, after the first traffic: recorded, not obeyed."""

    def fired(self, injection: Injection, fired_ms: int) -> Step:
        """Return the step with what was resolved when it fired."""
        return replace(
            self,
            nodes=injection.nodes,
            duration_ms=injection.duration_ms,
            details=dict(injection.details),
            fired_ms=fired_ms,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; None where nothing is settled yet."""
        return {
            "id": self.id,
            "fault": self.fault.to_json(),
            "at_ms": self.at_ms,
            "trigger": self.trigger,
            "required": self.required,
            "nodes": None if self.nodes is None else list(self.nodes),
            "duration_ms": self.duration_ms,
            "details": None if self.details is None else dict(self.details),
            "fired_ms": self.fired_ms,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Step:
        """Read what `to_json` wrote; ConfigError names the field that cannot be used."""
        trigger = raw.get("trigger", "healed")
        if trigger not in TRIGGERS:
            raise ConfigError(f"step trigger {trigger!r}: expected {' or '.join(TRIGGERS)}")
        if "fault" not in raw:
            raise ConfigError(f"step {dict(raw)!r}: no fault")
        nodes = raw.get("nodes")
        return cls(
            id=str(raw.get("id", "")),
            fault=fault_from_json(raw["fault"]),
            at_ms=int(raw.get("at_ms", 0)),
            trigger=trigger,
            required=bool(raw.get("required", True)),
            nodes=None if nodes is None else tuple(int(node) for node in nodes),
            duration_ms=raw.get("duration_ms"),
            details=raw.get("details"),
            fired_ms=raw.get("fired_ms"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps in order. `seed` draws what the steps leave open."""

    steps: tuple[Step, ...] = ()
    seed: int = 0
    cap: int = 1
    """Most brokers disturbed at once."""
    duration_ms: int | None = None
    """So long after the first traffic no further step fires unless it is required."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> str:
        """Return the file's text."""
        body = {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "cap": self.cap,
            "duration_ms": self.duration_ms,
            "notes": dict(self.notes),
            "steps": [step.to_json() for step in self.steps],
        }
        return json.dumps(body, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read a schedule file; ConfigError says what is wrong with it."""
        try:
            read: Any = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"not a schedule: {error}") from None
        raw = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        version = raw.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"schedule schema_version {version!r}: this Harrow reads {SCHEMA_VERSION}"
            )
        return cls(
            steps=tuple(Step.from_json(step) for step in raw.get("steps", ())),
            seed=int(raw.get("seed", 0)),
            cap=int(raw.get("cap", 1)),
            duration_ms=raw.get("duration_ms"),
            notes=raw.get("notes", {}),
        )


def check_faults(faults: Sequence[object]) -> tuple[Fault, ...]:
    """Return them as faults; ConfigError says what to write instead."""
    for fault in faults:
        if not isinstance(fault, Fault):
            name = getattr(fault, "__name__", "")
            hint = f"; write {name}(…)" if name else "; expected such as kill(leader('orders'))"
            raise ConfigError(f"{fault!r} is not a fault{hint}")
    return tuple(fault for fault in faults if isinstance(fault, Fault))


def in_turn(
    faults: Sequence[Fault],
    seed: int,
    *,
    duration_s: float | None = None,
    first_id: int = 1,
    cap: int = 1,
) -> Schedule:
    """Build a schedule of `faults` one after another; with `duration_s` round and round for so long."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    steps: list[Step] = []
    planned_ms = 0.0
    while faults and (not steps or (duration_s is not None and planned_ms < duration_s * 1000)):
        order = list(faults)
        if steps:
            rng.shuffle(order)
        for fault in order:
            number = first_id + len(steps)
            gap = rng.randint(*(GAP_MS if steps else FIRST_GAP_MS))
            first_round = len(steps) < len(faults)
            steps.append(Step(id=str(number), fault=fault, at_ms=gap, required=first_round))
            planned_ms += gap + _least_ms(fault)
    duration_ms = None if duration_s is None else round(duration_s * 1000)
    return Schedule(steps=tuple(steps), seed=seed, cap=cap, duration_ms=duration_ms)


def _least_ms(fault: Fault) -> float:
    seconds = fault.seconds
    least = seconds[0] if isinstance(seconds, tuple) else seconds
    return 250.0 if least is None else max(50.0, least * 1000)


# ------------------------------------------------------------------------------------- random chaos

RANDOM_FAULTS: Mapping[str, type[Fault]] = {
    fault.kind: fault
    for fault in (
        Kill, Pause, Isolate, Terminate, PowerLoss, Cut, Slow, Restart, RestartRegistry, PauseRegistry,
    )
}  # fmt: skip
DEFAULT_RANDOM = ("kill", "pause", "isolate")
ALL_RANDOM = (
    "kill", "pause", "isolate", "cut", "slow", "restart_registry", "pause_registry", "terminate", "restart",
)  # fmt: skip
"""All that any cluster can be broken with; a power loss needs one that keeps a journal for it."""


def random_schedule(
    seed: int,
    faults: Sequence[str] = DEFAULT_RANDOM,
    duration_s: float = 5.0,
    *,
    topics: Sequence[TopicLike] = (),
    groups: Sequence[str] = (),
    seconds: Seconds | None = None,
    swarm: bool = True,
    first_id: int = 1,
    cap: int = 1,
) -> Schedule:
    """Draw faults of random roles that fill `duration_s`.

    They come one after another or, with a `cap` over 1, on top of each other, each at a time of its own (the
    nemesis lets one wait while the cap is reached).
    `faults`: kinds that may take part, of `RANDOM_FAULTS`; with `swarm` the seed picks which of them do.
    """
    for name in faults:
        if name not in RANDOM_FAULTS:
            raise ConfigError(f"fault {name!r}: expected one of {', '.join(RANDOM_FAULTS)}")
    if not faults or duration_s <= 0:
        raise ConfigError(f"faults={list(faults)}, duration_s={duration_s}: nothing to do")
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kinds = rng.sample(list(faults), rng.randint(1, len(faults))) if swarm else list(faults)
    steps: list[Step] = []
    planned_ms = 0.0
    while planned_ms < duration_s * 1000:
        kind = RANDOM_FAULTS[rng.choice(kinds)]
        fault = _random_fault(kind, _random_role(rng, topics, groups), seconds)
        # The first one must fire: a run without any fault proves nothing.
        step = Step(id=str(first_id + len(steps)), fault=fault, required=not steps)
        if cap > 1:
            planned_ms += rng.randint(*(OVERLAP_MS if steps else FIRST_GAP_MS))
            steps.append(replace(step, trigger="traffic", at_ms=round(planned_ms)))
        else:
            gap = rng.randint(*(GAP_MS if steps else FIRST_GAP_MS))
            steps.append(replace(step, at_ms=gap))
            planned_ms += gap + max(_least_ms(fault), 1000.0)
    notes = {"kinds": kinds, "duration_s": duration_s}
    return Schedule(
        steps=tuple(steps), seed=seed, cap=cap, duration_ms=round(duration_s * 1000), notes=notes
    )


def _random_fault(kind: type[Fault], role: Target, seconds: Seconds | None) -> Fault:
    given: dict[str, Any] = {} if seconds is None else {"seconds": seconds}
    if not issubclass(kind, RegistryFault):
        given["target"] = role
    return kind(**given)


def _random_role(rng: random.Random, topics: Sequence[TopicLike], groups: Sequence[str]) -> Target:
    roles: list[Target] = [controller(), one]
    if topics:
        topic = rng.choice(list(topics))
        roles += [leader(topic), leader(topic), follower(topic)]
    if groups:
        roles.append(group_coordinator(rng.choice(list(groups))))
    return rng.choice(roles)
