"""How schedules are planned: the caller's faults in turn, or random ones from a seed.

`random_schedule` draws in the manner of swarm testing (Groce et al., ISSTA 2012): which kinds of fault take part
is itself drawn, so that no kind hides behind another. With a cap of 1 faults come in turn; with a
higher cap each has a time of its own, and they overlap as far as the cap allows.

`overlapping_schedule` draws the mix of simulations: kinds have weights, durations lie around the session timeout,
so that the registry detects some faults and does not detect others. With kill -9 no number of failures may lose a
record, so that a cap of all brokers is valid for it: liveness is checked only after healing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from .errors import ConfigError, nearest
from .fault_kinds import FAULTS, OWN_KINDS, extension_kinds, fault_kind
from .network_faults import Reset
from .process_faults import Kill
from .schedule import Schedule, ScheduledFault, timed_step
from .spec import Fault, Seconds
from .targets import Target, TopicLike, all_brokers, controller, follower, group_coordinator, leader, one

GAP_MS = (0, 400)
"""Between two faults without times of their own: long enough for traffic to continue."""
FIRST_GAP_MS = (0, 60)
"""Before the first fault: short, so that a short workload meets it."""
WEIGHT_MAX = 1000
OVERLAP_MS = (100, 1200)
"""Between the beginnings of faults that may overlap; they last about two seconds on average."""


def check_faults(faults: Sequence[object]) -> tuple[Fault, ...]:
    """Return them as faults; ConfigError says what to write instead."""
    for fault in faults:
        if not isinstance(fault, Fault):
            name = getattr(fault, "__name__", "")
            hint = f"; write {name}(…)" if name else "; expected such as kill(leader('orders'))"
            raise ConfigError(f"{fault!r} is not a fault{hint}")
    return tuple(fault for fault in faults if isinstance(fault, Fault))


def in_turn(
    faults: Sequence[Fault], seed: int, *, duration_s: float | None = None, first_id: int = 1, cap: int = 1
) -> Schedule:
    """Build a schedule of `faults` in turn; with `duration_s` again and again for so long."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    steps: list[ScheduledFault] = []
    planned_ms = 0.0
    while faults and (not steps or (duration_s is not None and planned_ms < duration_s * 1000)):
        order = list(faults)
        if steps:
            rng.shuffle(order)
        for fault in order:
            number = first_id + len(steps)
            gap = rng.randint(*(GAP_MS if steps else FIRST_GAP_MS))
            first_round = len(steps) < len(faults)
            steps.append(ScheduledFault(id=str(number), fault=fault, at_ms=gap, required=first_round))
            planned_ms += gap + _least_ms(fault)
    duration_ms = None if duration_s is None else round(duration_s * 1000)
    assert sum(step.required for step in steps) == len(faults), "each of the caller's faults is required once"
    return Schedule(steps=tuple(steps), seed=seed, cap=cap, duration_ms=duration_ms)


def _least_ms(fault: Fault) -> float:
    seconds = fault.seconds
    least = seconds[0] if isinstance(seconds, tuple) else seconds
    return 250.0 if least is None else max(50.0, least * 1000)


RANDOM_FAULTS: Mapping[str, type[Fault]] = {name: kind for name, kind in FAULTS.items() if kind.drawable}
"""Kinds that need no more than a target; partitions of several brokers are written out, with the cap that they need."""
DEFAULT_RANDOM = ("kill", "pause", "isolate")
ALL_RANDOM = (
    "kill",
    "pause",
    "isolate",
    "cut",
    "slow_link",
    "restart_registry",
    "pause_registry",
    "terminate",
    "restart",
    "reset",
    "slow_disk",
    "throttle",
    "lose_request",
    "delay_request",
)
"""Every kind that any cluster supports; a power loss needs a cluster that writes the journal of unsynced writes."""


def possible_kinds(kinds: Sequence[str], capabilities: frozenset[str]) -> tuple[str, ...]:
    """Return those of the kinds whose faults a backend with these capabilities can inject, in the same order."""
    found = ((name, drawable_kind(name)) for name in kinds)
    return tuple(
        name
        for name, kind in found
        if kind is None  # `random_schedule` refuses it
        or kind.drawn(one).capabilities() <= capabilities
    )


def drawable_kind(name: str) -> type[Fault] | None:
    """Return the class of a kind that random faults can draw; None where they cannot."""
    if name in RANDOM_FAULTS or name in OWN_KINDS:
        return RANDOM_FAULTS.get(name)
    kind = fault_kind(name)
    return kind if kind is not None and kind.drawable and not _missing_parameters(kind) else None


def _missing_parameters(kind: type[Fault]) -> list[str]:
    """Return the parameters that a fault of this kind needs, besides the target."""
    return [
        row.name
        for row in fields(kind)
        if row.default is MISSING and row.default_factory is MISSING and row.name != "target"
    ]


def check_drawable(names: Iterable[str]) -> None:
    """Raise ConfigError for a kind that random faults cannot draw."""
    for name in names:
        if drawable_kind(name) is None:
            own = {kind: FAULTS[kind] for kind in FAULTS if kind not in OWN_KINDS}
            added = {**own, **extension_kinds()}
            more = [kind for kind in added if drawable_kind(kind) is not None]
            why, given = "", {**FAULTS, **added}.get(name)
            if given is not None and (missing := ", ".join(_missing_parameters(given))):
                why = f"; {name} cannot be drawn, because it needs {missing}"
            known = [*RANDOM_FAULTS, *more]
            near = "" if given is not None else nearest(name, known)
            raise ConfigError(f"fault {name!r}{near}: expected one of {', '.join(known)}{why}")


def _drawable(name: str) -> type[Fault]:
    kind = drawable_kind(name)
    assert kind is not None, name
    return kind


def random_schedule(
    seed: int,
    faults: Sequence[str] | Mapping[str, int] = DEFAULT_RANDOM,
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

    `faults`: kinds that may take part, of `RANDOM_FAULTS` or of extensions; with `swarm` the seed picks which of them
    do. A mapping says how often each is drawn, else `Fault.random_weight` does.
    """
    check_drawable(faults)
    if not faults or duration_s <= 0:
        raise ConfigError(f"faults={list(faults)}, duration_s={duration_s}: expected a fault and a time")
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    kinds = rng.sample(list(faults), rng.randint(1, len(faults))) if swarm else list(faults)
    drawn = [name for name in kinds for _ in range(_weight(name, faults))]
    steps: list[ScheduledFault] = []
    planned_ms = 0.0
    while planned_ms < duration_s * 1000:
        kind = _drawable(rng.choice(drawn))
        fault = kind.drawn(_random_role(rng, topics, groups), seconds)
        # The first fault must fire: a run without any fault proves nothing.
        step = ScheduledFault(id=str(first_id + len(steps)), fault=fault, required=not steps)
        if cap > 1:
            planned_ms += rng.randint(*(OVERLAP_MS if steps else FIRST_GAP_MS))
            steps.append(replace(step, trigger="traffic", at_ms=round(planned_ms)))
        else:
            gap = rng.randint(*(GAP_MS if steps else FIRST_GAP_MS))
            steps.append(replace(step, at_ms=gap))
            planned_ms += gap + max(_least_ms(fault), 1000.0)
    assert steps and steps[0].required, "a run without any fault proves nothing"
    notes = {"kinds": kinds, "duration_s": duration_s}
    return Schedule(steps=tuple(steps), seed=seed, cap=cap, duration_ms=round(duration_s * 1000), notes=notes)


def drawn_fault(kind: str, role: Target, seconds: Seconds | None = None) -> Fault:
    """Return a random fault of `kind`, as `random_schedule` draws it for `role`."""
    return _drawable(kind).drawn(role, seconds)


def weighted_kinds(faults: Sequence[str] | Mapping[str, int]) -> list[str]:
    """Return the kinds of which random faults are drawn, each as often as its weight says.

    ConfigError for none, for a kind that cannot be drawn, and for a weight that is no number from 1 to `WEIGHT_MAX`.
    """
    check_drawable(faults)
    if not faults:
        raise ConfigError(f"kinds={faults!r}: expected at least one kind, such as 'kill'")
    return [name for name in faults for _ in range(_weight(name, faults))]


def random_roles(topic: TopicLike | None = None, group: str | None = None) -> list[Target]:
    """Return the roles of which random faults are drawn, for a topic and a group that were drawn before."""
    roles: list[Target] = [controller(), one]
    if topic is not None:
        roles += [leader(topic), leader(topic), follower(topic)]
    if group is not None:
        roles.append(group_coordinator(group))
    return roles


def _weight(name: str, given: Sequence[str] | Mapping[str, int]) -> int:
    weight: Any = given[name] if isinstance(given, Mapping) else _drawable(name).random_weight
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= WEIGHT_MAX:
        raise ConfigError(f"fault {name!r}: its weight is {weight!r}, expected a number from 1 to {WEIGHT_MAX}")
    return weight


def _random_role(rng: random.Random, topics: Sequence[TopicLike], groups: Sequence[str]) -> Target:
    topic = rng.choice(list(topics)) if topics else None
    group = rng.choice(list(groups)) if groups else None
    return rng.choice(random_roles(topic, group))


# ---------------------------------------------------------------------------- the mix of simulations

KILL_ALL = "kill_all"
WEIGHTS: Mapping[str, int] = {
    "kill": 6,
    "pause": 6,
    "isolate": 5,
    "cut": 5,
    "slow_link": 3,
    "reset": 3,
    "restart_registry": 2,
    "pause_registry": 2,
    "terminate": 2,
    "slow_disk": 1,
    KILL_ALL: 1,
}
"""How often each kind is drawn; `kill_all` is `kill(all_brokers)`."""
POWER_LOSS_WEIGHT = 6
TAKES_PART = 0.6
"""How likely a kind is to take part in a seed (swarm testing)."""
SESSIONS = (0.1, 0.4, 0.9, 1.3, 2.0, 3.0)
"""Durations, as parts of the session timeout."""
SESSIONS_BETWEEN = (0.4, 1.6)
"""How many faults a seed has, as parts of the number of sessions that its duration has; two at least."""
LAST_START = 0.9
"""No fault begins later than this part of the duration."""


def overlapping_schedule(
    seed: int,
    *,
    duration_ms: int,
    session_ms: int,
    brokers: int,
    topics: Sequence[TopicLike] = (),
    weights: Mapping[str, int] | None = None,
) -> Schedule:
    """Draw faults at random times of `duration_ms`, which overlap; see the module's head."""
    rng = random.Random(f"{seed}/overlapping")  # noqa: S311 - repeatable, not secret
    given = dict(WEIGHTS if weights is None else weights)
    check_drawable(kind for kind in given if kind != KILL_ALL)
    kinds = [kind for kind in given if rng.random() < TAKES_PART] or list(given)
    count = max(2, int(duration_ms / session_ms * rng.uniform(*SESSIONS_BETWEEN)))
    drawn = [
        (
            round(rng.uniform(0, duration_ms * LAST_START)),
            _drawn_fault(rng.choices(kinds, [given[kind] for kind in kinds])[0], rng, topics),
            round(session_ms * rng.choice(SESSIONS)),
        )
        for _ in range(count)
    ]
    steps = tuple(
        timed_step(number, at_ms, fault, 0 if isinstance(fault, Reset) else lasts_ms)
        for number, (at_ms, fault, lasts_ms) in enumerate(sorted(drawn, key=lambda row: row[0]), 1)
    )
    assert all(0 <= step.at_ms <= duration_ms for step in steps), "a fault begins after the end of the run"
    notes = {"planned_by": "overlapping_schedule", "kinds": kinds}
    return Schedule(steps=steps, seed=seed, cap=brokers, duration_ms=duration_ms, notes=notes)


def _drawn_fault(kind: str, rng: random.Random, topics: Sequence[TopicLike]) -> Fault:
    """A fault of `kind` on a drawn target: leaders and the controller more often than others."""
    if kind == KILL_ALL:
        return Kill(target=all_brokers)
    draw = rng.random()
    role = one
    if draw < 0.5 and topics:
        role = leader(rng.choice(list(topics)))
    elif draw < 0.7:
        role = controller()
    return _drawable(kind).simulated(role, rng)
