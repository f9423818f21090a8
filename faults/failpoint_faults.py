"""Faults at named places in the broker's code (K6): crash, stop, delay or error at the n-th hit.

`failpoint`           arms a place in a broker that runs
`failpoint_at_start`  SIGKILL, and a start with the place armed before the broker's code runs: the recovery of its logs,
                      its registration. `times=2`: the next start is armed too. `power_loss=True`: unsynced writes are
                      lost at the beginning and at each crash

`harrow failpoints` lists the places; those that begin with `recovery.` are reached by a start only. A crashed broker is
started again, a stopped broker is resumed, a place that was not reached is disarmed. Proof of a crash: the incarnation
that was armed is over. Proof of a stop: the broker is paused. Else: the broker's own count of what fired.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.host.seam.failpoints import DECLARED, RECOVERY

from .controls import DEAD, PAUSED, RUNNING, DiskPowerLoss
from .errors import ConfigError
from .evidence import Evidence
from .process_faults import ProcessFault, hit_once, is_over, restarted, running_again, shown, start_again, statuses
from .rule_kinds import ArmedRule, FailpointRule, StartFailpointRule
from .rules import arm_once, armed_in, disarm, disarmed, fired
from .spec import Fault, FaultState, Hold, Injection, Seconds
from .system import Broker, ClusterSnapshot, System
from .targets import Target, as_target
from .unreached_words import no_call

ACTIONS = ("crash", "stop", "delay", "error")
TIMES_MOST = 10
OF_EACH_START = (
    "recovery.after-marker-removal",
    "recovery.after-checkpoints",
    "recovery.before-lower-checkpoints",
    "recovery.after-logs",
    "broker.before-registration",
    "broker.after-registration",
)
OF_A_REPLICA = (
    "recovery.before-log",
    "recovery.before-segment",
    "recovery.after-segment",
    "recovery.before-epochs",
    "recovery.before-producers",
    "recovery.after-producers",
)
"""What a broker with a replica reaches, too, when it starts after a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint(ProcessFault):
    """Arm a failpoint on each broker of the target."""

    kind: ClassVar[str] = "failpoint"
    words: ClassVar[str] = "was hit at a failpoint"
    holds: ClassVar[Hold | None] = Hold.DEAD  # by its usual action, a crash; the mark does not say so
    own_mark: ClassVar[str] = "●"
    drawable: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"failpoints", "process"})
    waits_for_traffic: ClassVar[bool] = True
    point: str = ""
    action: str = "crash"
    nth: int = 1
    delay_ms: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_name(self.point)
        if self.point.startswith(RECOVERY):
            raise ConfigError(
                f"failpoint({self.point!r}): only a starting broker reaches this place; "
                f"write failpoint_at_start({self.point!r}, …)"
            )
        _check_action(self)

    @property
    def disturbs(self) -> bool:
        """A crashed or stopped broker is down."""
        return self.action in ("crash", "stop")

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        rule = FailpointRule(name=self.point, action=self.action, nth=self.nth, delay_ms=self.delay_ms)
        arm_once(system, injection, rule)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether it acted on at least one broker."""
        found = statuses(system, injection)
        if self.action == "stop":
            proved = any(status.state == PAUSED for status in found.values())
            return Evidence(proved=proved, facts={"failpoint": self.point, **shown(found)})
        facts = fired(system, injection, death_counts=self.action == "crash")
        proved = any(fact["fired"] for fact in facts.values())
        return Evidence(proved=proved, facts={"failpoint": self.point, "brokers": facts})

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say how often the code reached the place."""
        del injection
        return no_call(f"a hit of {self.point}", self.nth, "hits", facts.get("brokers", {}))

    def heal(self, system: System, injection: Injection) -> None:
        """Resume what is paused, start what is dead, disarm what did not fire."""
        start_again(system, injection)
        if all(status.state != PAUSED for status in statuses(system, injection).values()):
            disarm(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether brokers run and nothing is armed."""
        running = running_again(system, injection)
        if not running.proved or not armed_in(injection):
            return running
        return disarmed(system, injection, running)


@dataclass(slots=True, kw_only=True)
class _ArmedStart:
    """What the armed starts of one broker came to."""

    hits: int = 0
    rule: ArmedRule | None = None
    """Of the start that is in progress."""
    incarnation: int = 0
    missed: bool = False
    """The broker serves, and did not reach the place."""

    def to_json(self) -> dict[str, Any]:
        return {"hits": self.hits, "serves_without_a_hit": self.missed}


@dataclass(slots=True, kw_only=True)
class ArmedStarts(FaultState):
    """The armed starts, by broker."""

    starts: dict[int, _ArmedStart] = field(default_factory=dict[int, _ArmedStart])


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointAtStart(ProcessFault):
    """End each broker of the target, and start it with an armed failpoint, until it was hit `times` times."""

    state_type: ClassVar[type[FaultState]] = ArmedStarts
    kind: ClassVar[str] = "failpoint_at_start"
    words: ClassVar[str] = "was hit at a failpoint of its start"
    needs: ClassVar[frozenset[str]] = frozenset({"failpoints", "process"})
    effect_timeout_ms: ClassVar[int] = 60_000
    point: str | None = None
    """None: a place that each start reaches, drawn by the seed."""
    action: str = "crash"
    nth: int = 1
    delay_ms: int = 0
    times: int = 1
    power_loss: bool = False

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.point is not None:
            check_name(self.point)
        _check_action(self)
        if not 1 <= self.times <= TIMES_MOST or (self.times > 1 and self.action != "crash"):
            raise ConfigError(
                f"{self.kind}(action={self.action!r}, times={self.times!r}): expected 1, or for a crash a number up to "
                f"{TIMES_MOST}"
            )

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return self.needs | ({"power-loss"} if self.power_loss else set[str]())

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the brokers, and the place where the caller gave none."""
        injection = ProcessFault.resolve(self, snapshot, rng, id=id)
        hosts = [set(row.replicas) for _, row in snapshot.view.partitions()]
        has_logs = all(any(node in nodes for nodes in hosts) for node in injection.nodes)
        places = (*OF_EACH_START, *OF_A_REPLICA) if has_logs else OF_EACH_START
        drawn = rng.choice(places)
        details = {**injection.details, "point": self.point or drawn, "seed": rng.getrandbits(32)}
        return Injection(id=id, fault=self, nodes=injection.nodes, duration_ms=injection.duration_ms, details=details)

    def inject(self, system: System, injection: Injection) -> None:
        """End each broker once."""
        starts = ArmedStarts.of(injection).starts

        def act(broker: Broker) -> None:
            starts[broker.node] = _ArmedStart()
            self._end(broker, injection, 0)

        hit_once(system, injection, act)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Start a broker that is dead with the failpoint armed, and count its hits."""
        del now_ms
        for node, start in ArmedStarts.of(injection).starts.items():
            if start.hits < self.times and not start.missed:
                self._advance_broker(system.broker(node), injection, start)

    def _advance_broker(self, broker: Broker, injection: Injection, start: _ArmedStart) -> None:
        status = broker.status()
        if start.rule is None:
            if status.state == DEAD:
                point = injection.details["point"]
                rule = StartFailpointRule(name=point, action=self.action, nth=self.nth, delay_ms=self.delay_ms)
                start.rule = broker.rules.arm(rule)
                start.incarnation = broker.status().incarnation
        elif is_over(status, start.incarnation):
            start.hits, start.rule = start.hits + 1, None
            self._end(broker, injection, start.hits)
        elif status.state == PAUSED:
            start.hits += self.action == "stop"
        elif status.state == RUNNING:
            hit = start.rule.status().fired > 0
            start.hits += hit
            start.missed = not hit

    def _end(self, broker: Broker, injection: Injection, number: int) -> None:
        if self.power_loss:
            broker.disk.end_with(DiskPowerLoss(seed=f"{injection.details['seed']}/{broker.node}/{number}"))
        else:
            broker.process.kill()

    def is_done(self, injection: Injection) -> bool:
        """Whether each broker was hit often enough, or serves."""
        starts = ArmedStarts.of(injection).starts.values()
        return all(start.missed or start.hits >= self.times for start in starts)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker was hit so often."""
        del system
        starts = ArmedStarts.of(injection).starts
        proved = bool(starts) and all(start.hits >= self.times for start in starts.values())
        facts = {str(node): start.to_json() for node, start in starts.items()}
        place = injection.details.get("point")
        return Evidence(proved=proved, facts={"failpoint": place, "starts": facts})

    def heal(self, system: System, injection: Injection) -> None:
        """Start what is dead, resume what is paused, disarm what did not fire."""
        start_again(system, injection)
        for node, start in ArmedStarts.of(injection).starts.items():
            if start.missed and start.rule is not None:
                status = system.broker(node).status()
                if not is_over(status, start.incarnation):
                    start.rule.disarm()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, in a later incarnation than the first."""
        return restarted(system, injection)


def _check_action(fault: Failpoint | FailpointAtStart) -> None:
    if fault.action not in ACTIONS:
        raise ConfigError(f"{fault.kind}(action={fault.action!r}): expected {', '.join(ACTIONS)}")
    if fault.nth < 1 or fault.delay_ms < 0:
        raise ConfigError(
            f"{fault.kind}(nth={fault.nth}, delay_ms={fault.delay_ms}): expected nth from 1 up, delay_ms from 0 up"
        )


def check_name(name: str) -> None:
    """Raise ConfigError for a place that no code declares."""
    if name not in DECLARED:
        near = difflib.get_close_matches(name, DECLARED, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(DECLARED)}"
        raise ConfigError(f"failpoint {name!r}: no such place in the code{hint}")


@checked
def failpoint(
    name: str,
    target: Target | int,
    action: str = "crash",
    *,
    nth: int = 1,
    delay_ms: int = 0,
    seconds: Seconds | None = None,
) -> Failpoint:
    """At the n-th time that the broker's code reaches `name`: crash, stop, delay or error."""
    return Failpoint(
        target=as_target(target, Failpoint.kind),
        point=name,
        action=action,
        nth=nth,
        delay_ms=delay_ms,
        seconds=seconds,
    )


@checked
def failpoint_at_start(
    name: str | None,
    target: Target | int,
    action: str = "crash",
    *,
    nth: int = 1,
    delay_ms: int = 0,
    times: int = 1,
    power_loss: bool = False,
    seconds: Seconds | None = None,
) -> FailpointAtStart:
    """SIGKILL, and a start in which the place `name` is armed (None: the seed draws a place of recovery).

    `times`: so many starts in a row crash there; `power_loss`: each crash loses unsynced writes, too.
    """
    return FailpointAtStart(
        target=as_target(target, FailpointAtStart.kind),
        point=name,
        action=action,
        nth=nth,
        delay_ms=delay_ms,
        times=times,
        power_loss=power_loss,
        seconds=seconds,
    )
