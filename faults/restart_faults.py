"""Faults of starts and restarts (K1): rolling restart, crash loop, crash during recovery, slow start.

They have several steps, which `advance` takes one after the other; none waits.

`rolling_restart`        each broker in turn: a controlled shutdown (SIGKILL with `kill=True`) and a start; the next one
                         when the broker runs and is back in the ISR of its partitions (`await_isr=False`: when it
                         runs). Evidence: the first incarnation has ended; it is done when each has
`crash_loop`             SIGKILL, a start, and again a SIGKILL `alive_s` after the start, before or after the broker
                         serves. Evidence: at least two crashes
`crash_during_recovery`  SIGKILL, or SIGTERM with `clean=True`; a start; SIGKILL while it starts, `crashes` times.
                         Evidence: so many times it was starting when it was killed
`slow_start`             SIGKILL, a start, and SIGSTOP while the broker starts; it is resumed when the fault is healed.
                         Evidence: the new incarnation is paused before it served

A broker that was ready too early is killed, and started again with half of the time. Healed: the brokers run.
"""

from __future__ import annotations

import abc
import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .controls import DEAD, PAUSED, RUNNING, STARTING
from .errors import ConfigError
from .evidence import Evidence
from .process_faults import ProcessFault, hit_once, is_over, restarted, shown, statuses
from .spec import Fault, FaultState, Hold, Injection, Seconds, amount_within, least_and_most
from .system import Broker, ClusterSnapshot, System
from .targets import Target, all_brokers, as_target

ALIVE_S = (0.0, 1.0)
"""Some crashes come before the broker serves, some after."""
ALIVE_S_MOST = 60.0
STARTING_MS = 300.0
"""The first try to hit a broker that starts: at most so long after the beginning of the start."""
AT_ONCE_MS = 10.0
"""Below this a try hits the broker in the turn that starts it."""
CRASHES_MOST = 20
CRASHES_OF_A_LOOP = 2


# --------------------------------------------------------------------------------- rolling restart


@dataclass(slots=True, kw_only=True)
class RollingState(FaultState):
    """Whose turn it is: an index of the brokers of the injection."""

    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart(ProcessFault):
    """Restart the brokers of the target one after the other, in the order of their ids."""

    state_type: ClassVar[type[FaultState]] = RollingState
    kind: ClassVar[str] = "rolling_restart"
    words: ClassVar[str] = "was restarted, one broker after the other"
    own_mark: ClassVar[str] = "↻"
    ends_process: ClassVar[bool] = True
    one_at_a_time: ClassVar[bool] = True
    target: Target = all_brokers
    seconds: Seconds | None = 0.0
    kill: bool = False
    await_isr: bool = True

    def disturbed_nodes(self, injection: Injection) -> frozenset[int]:
        """Return the broker whose turn it is."""
        assert 0 <= RollingState.of(injection).turn <= len(injection.nodes), "a turn of no broker"
        return frozenset(injection.nodes[RollingState.of(injection).turn :][:1])

    def inject(self, system: System, injection: Injection) -> None:
        """End the first broker."""
        self._end(system, injection)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Start the broker that has ended; when it is back, end the next one."""
        del now_ms
        if self.is_done(injection):
            return
        node = injection.nodes[RollingState.of(injection).turn]
        incarnations = FaultState.of(injection).incarnations
        status = system.broker(node).status()
        if node not in incarnations:
            self._end(system, injection)
        elif status.state == DEAD:
            system.broker(node).process.start()
        elif self._is_back(system, node, incarnations[node]):
            RollingState.of(injection).turn += 1
            assert len(incarnations) == RollingState.of(injection).turn, "brokers are restarted one after the other"
            self._end(system, injection)

    def _is_back(self, system: System, node: int, incarnation: int) -> bool:
        status = system.broker(node).status()
        if status.state != RUNNING or not is_over(status, incarnation):
            return False
        return not self.await_isr or is_in_sync(system, node)

    def is_done(self, injection: Injection) -> bool:
        """Whether the last broker is back."""
        return RollingState.of(injection).turn >= len(injection.nodes)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the first incarnation has ended."""
        incarnations = FaultState.of(injection).incarnations
        found = statuses(system, injection)
        proved = any(is_over(status, incarnations[node]) for node, status in found.items())
        return Evidence(proved=proved, facts=shown(found))

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run; a broker that is still in its controlled shutdown does not count."""
        found = restarted(system, injection)
        count = len(FaultState.of(injection).incarnations)
        return Evidence(proved=found.proved, facts={**found.facts, "restarted": count})

    def _end(self, system: System, injection: Injection) -> None:
        """End the broker whose turn it is, when it runs."""
        node = next(iter(self.disturbed_nodes(injection)), None)
        if node is None or system.broker(node).status().state != RUNNING:
            return
        hit_once(
            system,
            injection,
            lambda broker: broker.process.kill() if self.kill else broker.process.terminate(),
            [node],
        )


def is_in_sync(system: System, node: int) -> bool:
    """Whether a broker is in the ISR of each partition of which it has a replica; ClusterError without a view."""
    rows = (row for topic in system.describe().topics.values() for row in topic.values())
    return all(node in row.isr for row in rows if node in row.replicas)


# ------------------------------------------------------------------------------- repeated starts


@dataclass(slots=True, kw_only=True)
class _Start:
    """What one broker's starts came to so far."""

    rng: random.Random
    hit_ms: float | None = None
    """When the current start is hit; None before a start."""
    within_ms: float = STARTING_MS
    crashes: int = 0
    hits: int = 0
    """How often it was hit while it was starting."""
    killed: int = 0
    """The last incarnation that was sent a signal to end: it may seem to run for a moment."""

    def to_json(self) -> dict[str, int]:
        assert self.hits <= self.crashes + 1, f"{self.hits} starts were hit in {self.crashes} crashes"
        return {"crashes": self.crashes, "hits_while_starting": self.hits}


@dataclass(slots=True, kw_only=True)
class StartState(FaultState):
    """What the starts of each broker came to."""

    starts: dict[int, _Start] = field(default_factory=dict[int, _Start])


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedStart(ProcessFault):
    """A fault that kills its brokers, starts them, and hits them again."""

    state_type: ClassVar[type[FaultState]] = StartState
    ends_process: ClassVar[bool] = True
    holds: ClassVar[Hold | None] = Hold.DEAD
    effect_timeout_ms: ClassVar[int] = 60_000

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the seed of the times."""
        del snapshot
        return {"seed": rng.getrandbits(32)}

    def inject(self, system: System, injection: Injection) -> None:
        """Kill each broker once."""
        seed = injection.details["seed"]
        starts = StartState.of(injection).starts

        def act(broker: Broker) -> None:
            rng = random.Random(f"{seed}/{broker.node}")  # noqa: S311 - repeatable, not secret
            starts[broker.node] = _Start(crashes=1, rng=rng, killed=broker.status().incarnation)
            self.end(broker)

        hit_once(system, injection, act)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Start a broker that is dead, hit one whose time has come."""
        for node, start in StartState.of(injection).starts.items():
            if self.continues(start):
                self._advance_broker(system.broker(node), start, now_ms)

    def _advance_broker(self, broker: Broker, start: _Start, now_ms: int) -> None:
        state = broker.status().state
        if state == DEAD:
            broker.process.start()
            start.hit_ms = now_ms + self.draw_alive_ms(start)
            assert start.hit_ms >= now_ms, f"{broker} is hit before its start"
            state = broker.status().state
        if start.hit_ms is None or state in (DEAD, PAUSED):
            return
        if now_ms >= start.hit_ms or (state == RUNNING and self.misses(start)):
            start.hits += state == STARTING
            start.within_ms /= 1 if state == STARTING else 2
            self.hit(broker, start, state)

    def end(self, broker: Broker) -> None:
        """End a broker that runs, before its start."""
        broker.process.kill()

    @abc.abstractmethod
    def continues(self, start: _Start) -> bool:
        """Whether there is something left to do for this broker."""

    def draw_alive_ms(self, start: _Start) -> float:
        """Draw when it is hit after its start: within a part of the time in which earlier starts were not complete."""
        return start.rng.uniform(0, start.within_ms) if start.within_ms > AT_ONCE_MS else 0.0

    def misses(self, start: _Start) -> bool:
        """Whether a broker that runs was to be hit before."""
        del start
        return True

    def hit(self, broker: Broker, start: _Start, state: str) -> None:
        """Hit a broker that is starting or running."""
        start.crashes += 1
        start.hit_ms = None
        assert broker.status().incarnation >= start.killed, f"{broker}: an earlier incarnation runs again"
        start.killed = broker.status().incarnation
        if state == RUNNING:
            self.end(broker)
        else:
            broker.process.kill()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, in a later incarnation than the last one that was killed."""
        killed = {node: start.killed for node, start in StartState.of(injection).starts.items()}
        return restarted(system, injection, killed)


def _facts(injection: Injection) -> dict[str, Any]:
    return {"starts": {str(node): start.to_json() for node, start in StartState.of(injection).starts.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashLoop(RepeatedStart):
    """A broker that is killed `alive_s` after each start."""

    kind: ClassVar[str] = "crash_loop"
    words: ClassVar[str] = "crashed again and again"
    alive_s: Seconds = ALIVE_S

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        where = "crash_loop(alive_s"
        checked = amount_within(self.alive_s, ALIVE_S_MOST, where, "seconds", least=0)
        object.__setattr__(self, "alive_s", checked)

    def continues(self, start: _Start) -> bool:
        """Until the fault is healed."""
        del start
        return True

    def misses(self, start: _Start) -> bool:
        """A broker may run until its time comes."""
        del start
        return False

    def draw_alive_ms(self, start: _Start) -> float:
        """Draw from `alive_s`."""
        low, high = least_and_most(self.alive_s)
        return 1000 * start.rng.uniform(low, high)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker has crashed twice, and the later incarnation has ended."""
        incarnations = FaultState.of(injection).incarnations
        found = statuses(system, injection)
        again = all(is_over(status, incarnations[node] + CRASHES_OF_A_LOOP - 1) for node, status in found.items())
        crashed = [start.crashes >= CRASHES_OF_A_LOOP for start in StartState.of(injection).starts.values()]
        facts = {**shown(found), **_facts(injection)}
        return Evidence(proved=bool(crashed) and all(crashed) and again, facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashDuringRecovery(RepeatedStart):
    """A broker that is killed while it starts, `crashes` times; `clean`: after a controlled shutdown."""

    kind: ClassVar[str] = "crash_during_recovery"
    words: ClassVar[str] = "crashed while it recovered its log"
    crashes: int = 1
    clean: bool = False

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if not 1 <= self.crashes <= CRASHES_MOST:
            raise ConfigError(
                f"crash_during_recovery(crashes={self.crashes!r}): expected a number from 1 to {CRASHES_MOST}"
            )

    def end(self, broker: Broker) -> None:
        """End a broker that runs."""
        if self.clean:
            broker.process.terminate()
        else:
            broker.process.kill()

    def continues(self, start: _Start) -> bool:
        """Until it was killed often enough."""
        return start.hits < self.crashes

    def is_done(self, injection: Injection) -> bool:
        """Whether each broker was killed often enough."""
        return not any(self.continues(start) for start in StartState.of(injection).starts.values())

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether each broker was killed so often while it was starting, and has ended."""
        incarnations = FaultState.of(injection).incarnations
        found = statuses(system, injection)
        over = all(is_over(status, incarnations[node] + self.crashes) for node, status in found.items())
        proved = bool(found) and self.is_done(injection) and over
        return Evidence(proved=proved, facts={**shown(found), **_facts(injection)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStart(RepeatedStart):
    """A broker that is killed, and then starts slowly: it is paused before it serves."""

    kind: ClassVar[str] = "slow_start"
    words: ClassVar[str] = "was killed and started slowly"

    def continues(self, start: _Start) -> bool:
        """Until it was paused while it was starting."""
        return not start.hits

    def hit(self, broker: Broker, start: _Start, state: str) -> None:
        """Pause it; kill it where it serves already."""
        if state == STARTING:
            broker.process.pause()
        else:
            RepeatedStart.hit(self, broker, start, state)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a later incarnation is paused, and was paused while it was starting."""
        incarnations = FaultState.of(injection).incarnations
        found = statuses(system, injection)
        starts = StartState.of(injection).starts
        proved = bool(starts) and all(
            starts[node].hits and status.state == PAUSED and status.incarnation > incarnations[node]
            for node, status in found.items()
        )
        return Evidence(proved=proved, facts={**shown(found), **_facts(injection)})


@checked
def rolling_restart(
    target: Target | int = all_brokers, *, kill: bool = False, await_isr: bool = True
) -> RollingRestart:
    """Restart each broker in turn; the next when the last is back in its ISRs (`await_isr=False`: when it runs)."""
    return RollingRestart(target=as_target(target, RollingRestart.kind), kill=kill, await_isr=await_isr)


@checked
def crash_loop(target: Target | int, *, alive_s: Seconds = ALIVE_S, seconds: Seconds | None = None) -> CrashLoop:
    """Kill a broker, and again `alive_s` after each start; at least two crashes, and as many as fit in `seconds`."""
    return CrashLoop(target=as_target(target, CrashLoop.kind), alive_s=alive_s, seconds=seconds)


@checked
def crash_during_recovery(
    target: Target | int, *, crashes: int = 1, clean: bool = False, seconds: Seconds | None = None
) -> CrashDuringRecovery:
    """Kill a broker, and again `crashes` times while it starts; it stays dead for `seconds`.

    `clean=True`: it is not killed at first, it gets a SIGTERM (a controlled shutdown).
    """
    return CrashDuringRecovery(
        target=as_target(target, CrashDuringRecovery.kind), crashes=crashes, clean=clean, seconds=seconds
    )


@checked
def slow_start(target: Target | int, *, seconds: Seconds | None = None) -> SlowStart:
    """Kill a broker, and pause it for `seconds` while it starts."""
    return SlowStart(target=as_target(target, SlowStart.kind), seconds=seconds)
