"""Faults of a broker's resources, without root (K5): processor time, file descriptors, connections, memory.

`throttle_cpu`         the broker runs for `share` of each `period_ms`, and is paused by SIGSTOP for the rest.
                       Evidence: it was seen paused in several periods
`exhaust_descriptors`  the limit of open files is lowered to those that are open: nothing can be opened or accepted. A
                       broker that must open a file (a new segment) fails as with a failed disk: its data folder is
                       offline, or it ends. Evidence: the limit is in force, and no descriptor is left
`exhaust_connections`  strangers connect until the broker serves no new connection: new clients wait, or are refused
                       (`max.connections`, `max.connections.per.ip`; KIP-402). Open connections go on, and brokers have
                       a listener of their own. Evidence: a connection is not served, or closed at once; healed: a
                       new one is served
`limit_memory`         the limit of memory is lowered to what the broker has, and `spare_bytes`: an allocation fails.
                       The broker ends at once, as a JVM with -XX:+ExitOnOutOfMemoryError does, because after a failed
                       allocation nothing in it can be trusted. Evidence: it has ended under the limit

Healed: the broker runs. After `exhaust_descriptors` it is a later incarnation, which has the former limit and all its
data folders.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from harrow.cluster.argument_types import checked

from .controls import PAUSED, RUNNING
from .errors import ConfigError
from .evidence import Evidence
from .process_faults import Pause, ProcessFault, ended, hit_once, is_over, running_again, shown, start_again, statuses
from .rule_kinds import ConnectionRule, DescriptorRule, MemoryRule
from .rules import all_fired, arm_once, armed_in, disarm, disarmed
from .spec import Fault, FaultState, Hold, Injection, Seconds
from .system import System
from .targets import Target, as_target

SHARE = 0.3
PERIOD_MS = 100
PERIOD_MS_LEAST, PERIOD_MS_MOST = 50, 10_000
"""A nemesis has a turn every 10 ms."""
PERIODS_PROVED = 3
CONNECTIONS, CONNECTIONS_MOST = 500, 20_000
SPARE_BYTES_MOST = 1 << 30


@dataclass(slots=True, kw_only=True)
class CpuState(FaultState):
    """Since when the brokers are paused and resumed in turn."""

    begun_ms: int | None = None
    paused_in: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    """By broker: the numbers of the periods in which it was seen paused."""


@dataclass(slots=True, kw_only=True)
class ConnectionState(FaultState):
    """The brokers whose connections of strangers are closed."""

    closed: list[int] = field(default_factory=list[int])


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleCpu(Pause):
    """A broker that gets a share of the processor time."""

    state_type: ClassVar[type[FaultState]] = CpuState
    kind: ClassVar[str] = "throttle_cpu"
    words: ClassVar[str] = "had little CPU time"
    holds: ClassVar[Hold | None] = Hold.SLOW
    moves_leaders: ClassVar[bool] = False
    share: float = SHARE
    period_ms: int = PERIOD_MS

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 0 < self.share < 1 or not PERIOD_MS_LEAST <= self.period_ms <= PERIOD_MS_MOST:
            raise ConfigError(
                f"throttle_cpu(share={self.share!r}, period_ms={self.period_ms!r}): expected a share between 0 and 1, "
                f"and a period from {PERIOD_MS_LEAST} to {PERIOD_MS_MOST}"
            )

    def inject(self, system: System, injection: Injection) -> None:
        """Note the brokers; `advance` pauses them."""
        hit_once(system, injection, lambda _broker: None)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Pause or resume each broker, as the time in the period says."""
        state = CpuState.of(injection)
        if state.begun_ms is None:
            state.begun_ms = now_ms
        passed_ms = now_ms - state.begun_ms
        assert passed_ms >= 0, f"{self} began at {state.begun_ms}, after now ({now_ms})"
        runs = passed_ms % self.period_ms < self.share * self.period_ms
        for node, status in statuses(system, injection).items():
            if status.state == PAUSED:
                state.paused_in.setdefault(node, set()).add(passed_ms // self.period_ms)
                if runs:
                    system.broker(node).process.resume()
            elif status.state == RUNNING and not runs:
                system.broker(node).process.pause()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker was seen paused in several periods."""
        found = statuses(system, injection)
        seen = CpuState.of(injection).paused_in
        periods = {str(node): len(seen.get(node, ())) for node in found}
        proved = bool(found) and all(count >= PERIODS_PROVED for count in periods.values())
        return Evidence(proved=proved, facts={**shown(found), "paused_in_periods": periods})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustDescriptors(ProcessFault):
    """A broker without free file descriptors."""

    kind: ClassVar[str] = "exhaust_descriptors"
    words: ClassVar[str] = "had no free file descriptor"
    needs: ClassVar[frozenset[str]] = frozenset({"descriptors", "process"})

    def inject(self, system: System, injection: Injection) -> None:
        """Lower the limit of each broker once."""
        arm_once(system, injection, DescriptorRule())

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker has no descriptor left, or has ended for want of one."""
        return all_fired(system, injection, "brokers")

    def heal(self, system: System, injection: Injection) -> None:
        """Raise the limit again, and restart the broker: a data folder that is offline is opened only by a start."""
        disarm(system, injection)
        restarted = FaultState.of(injection).restarted
        for node, incarnation, _ in armed_in(injection):
            broker = system.broker(node)
            status = broker.status()
            if not is_over(status, incarnation) and node not in restarted:
                restarted.append(node)
                broker.process.terminate()
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, in a later incarnation."""
        over = not armed_in(injection) or ended(system, injection).proved
        running = running_again(system, injection)
        return Evidence(proved=over and running.proved, facts=running.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExhaustConnections(Fault):
    """A broker that serves no new connection."""

    kind: ClassVar[str] = "exhaust_connections"
    words: ClassVar[str] = "had no free connection"
    drawable: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"connections"})
    state_type: ClassVar[type[FaultState]] = ConnectionState
    effect_timeout_ms: ClassVar[int] = 30_000
    most: int = CONNECTIONS

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 1 <= self.most <= CONNECTIONS_MOST:
            raise ConfigError(
                f"exhaust_connections(most={self.most!r}): expected a number from 1 to {CONNECTIONS_MOST}"
            )

    def inject(self, system: System, injection: Injection) -> None:
        """Begin to connect to each broker, once."""
        arm_once(system, injection, ConnectionRule(most=self.most))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker leaves a new connection unserved."""
        return all_fired(system, injection, "brokers", death_counts=False)

    def heal(self, system: System, injection: Injection) -> None:
        """Close the connections, also those to a broker that another fault has ended."""
        del system
        closed = ConnectionState.of(injection).closed
        for node, _, rule in armed_in(injection):
            if node not in closed:
                closed.append(node)
                rule.disarm()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker serves a new connection; a broker that another fault ended is left to it."""
        return disarmed(system, injection, Evidence(proved=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitMemory(ProcessFault):
    """A broker that gets no more memory, and ends when it needs some."""

    kind: ClassVar[str] = "limit_memory"
    words: ClassVar[str] = "had little memory"
    drawable: ClassVar[bool] = False
    effect_timeout_ms: ClassVar[int] = 180_000
    """A broker reaches its limit only with enough traffic."""
    needs: ClassVar[frozenset[str]] = frozenset({"memory", "process"})
    waits_for_traffic: ClassVar[bool] = True
    spare_bytes: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 0 <= self.spare_bytes <= SPARE_BYTES_MOST:
            raise ConfigError(
                f"limit_memory(spare_bytes={self.spare_bytes!r}): expected a number from 0 to {SPARE_BYTES_MOST}"
            )

    def inject(self, system: System, injection: Injection) -> None:
        """Lower the limit of each broker once."""
        arm_once(system, injection, MemoryRule(spare_bytes=self.spare_bytes))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker has ended under its limit."""
        return all_fired(system, injection, "brokers")

    def heal(self, system: System, injection: Injection) -> None:
        """Raise the limit of what still runs, and start what has ended."""
        disarm(system, injection)
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, without the limit."""
        return disarmed(system, injection, running_again(system, injection))


@checked
def throttle_cpu(
    target: Target | int, *, share: float = SHARE, period_ms: int = PERIOD_MS, seconds: Seconds | None = None
) -> ThrottleCpu:
    """Let a broker run for `share` of the time only."""
    return ThrottleCpu(target=as_target(target, ThrottleCpu.kind), share=share, period_ms=period_ms, seconds=seconds)


@checked
def exhaust_descriptors(target: Target | int, *, seconds: Seconds | None = None) -> ExhaustDescriptors:
    """Let a broker open no further file and accept no further connection."""
    return ExhaustDescriptors(target=as_target(target, ExhaustDescriptors.kind), seconds=seconds)


@checked
def limit_memory(target: Target | int, *, spare_bytes: int = 0, seconds: Seconds | None = None) -> LimitMemory:
    """Let a broker get no more memory than it has and `spare_bytes`; it ends when it needs more, and starts again."""
    return LimitMemory(target=as_target(target, LimitMemory.kind), spare_bytes=spare_bytes, seconds=seconds)


@checked
def exhaust_connections(
    target: Target | int, *, most: int = CONNECTIONS, seconds: Seconds | None = None
) -> ExhaustConnections:
    """Let strangers connect to a broker, at most `most` times, until it serves no new connection.

    The broker needs a `max.connections` below `most`; clients that are connected go on.
    """
    return ExhaustConnections(target=as_target(target, ExhaustConnections.kind), most=most, seconds=seconds)
