"""Faults of a broker's process (K1): kill, terminate, restart, pause.

Each fault is injected once, into the current incarnation of a broker. Evidence: that incarnation has ended (the process
is dead, or has been started again since), or the process is paused. Healed: the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .controls import DEAD, PAUSED, RUNNING, ProcessStatus
from .evidence import Evidence
from .spec import Fault, FaultState, Hold, Injection, Seconds
from .system import Broker, System


def hit_once(
    system: System, injection: Injection, act: Callable[[Broker], object], nodes: Iterable[int] | None = None
) -> None:
    """Call `act` for each broker that is alive and not affected yet, and note its incarnation.

    `nodes`: some brokers of the injection; None: all of them.
    """
    incarnations = FaultState.of(injection).incarnations
    for node in injection.nodes if nodes is None else nodes:
        broker = system.broker(node)
        status = broker.status()
        if node not in incarnations and status.state != DEAD:
            incarnations[node] = status.incarnation
            act(broker)


def is_over(status: ProcessStatus, incarnation: int) -> bool:
    """Whether the affected incarnation has ended."""
    return status.state == DEAD or status.incarnation > incarnation


def statuses(system: System, injection: Injection) -> dict[int, ProcessStatus]:
    """Return the status of each affected broker, by node id."""
    incarnations = FaultState.of(injection).incarnations
    others = incarnations.keys() - set(injection.nodes)
    assert not others, f"{injection.fault} hit {sorted(others)}, and its brokers are {injection.nodes}"
    return {node: system.broker(node).status() for node in incarnations}


def shown(found: dict[int, ProcessStatus]) -> dict[str, Any]:
    """Return statuses as facts."""
    return {"brokers": {str(node): status.to_json() for node, status in found.items()}}


def ended(system: System, injection: Injection) -> Evidence:
    """Observe whether every affected incarnation has ended."""
    incarnations = FaultState.of(injection).incarnations
    found = statuses(system, injection)
    proved = bool(found) and all(is_over(status, incarnations[node]) for node, status in found.items())
    return Evidence(proved=proved, facts=shown(found))


def start_again(system: System, injection: Injection) -> None:
    """Start each broker of the target that is dead, and resume each one that is paused."""
    for node in injection.nodes:
        broker = system.broker(node)
        state = broker.status().state
        if state == DEAD:
            broker.process.start()
        elif state == PAUSED:
            broker.process.resume()


def running_again(system: System, injection: Injection) -> Evidence:
    """Observe whether every broker of the target runs."""
    found = {node: system.broker(node).status() for node in injection.nodes}
    proved = all(status.state == RUNNING for status in found.values())
    return Evidence(proved=proved, facts=shown(found))


def restarted(system: System, injection: Injection, killed: Mapping[int, int] | None = None) -> Evidence:
    """Observe whether every broker of the target runs, and each affected one in a later incarnation.

    `killed`: the incarnations that must be over, where these are not those that were affected first.
    """
    incarnations = FaultState.of(injection).incarnations if killed is None else killed
    over = all(is_over(system.broker(node).status(), was) for node, was in incarnations.items())
    running = running_again(system, injection)
    return Evidence(proved=over and running.proved, facts=running.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFault(Fault):
    """A fault whose brokers run again when it is healed."""

    def heal(self, system: System, injection: Injection) -> None:
        """Start dead brokers, resume paused brokers."""
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run."""
        return running_again(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(ProcessFault):
    """SIGKILL; healed by starting the broker again. Its page cache survives, its memory does not."""

    kind: ClassVar[str] = "kill"
    words: ClassVar[str] = "was killed"
    holds: ClassVar[Hold | None] = Hold.DEAD
    at_once: ClassVar[bool] = True
    moves_leaders: ClassVar[bool] = True
    ends_process: ClassVar[bool] = True

    def inject(self, system: System, injection: Injection) -> None:
        """Kill each broker once."""
        hit_once(system, injection, lambda broker: broker.process.kill())

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the affected incarnations have ended."""
        return ended(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, in a later incarnation than the affected one."""
        return restarted(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate(Kill):
    """SIGTERM: a controlled shutdown, which moves leaders first; healed by starting the broker again.

    A broker that has not ended when the fault is healed is killed, and started again.
    """

    kind: ClassVar[str] = "terminate"
    words: ClassVar[str] = "was shut down"

    def inject(self, system: System, injection: Injection) -> None:
        """Terminate each broker once."""
        hit_once(system, injection, lambda broker: broker.process.terminate())

    def heal(self, system: System, injection: Injection) -> None:
        """Start dead brokers; kill a broker whose controlled shutdown has not ended."""
        incarnations = FaultState.of(injection).incarnations
        for node, status in statuses(system, injection).items():
            if not is_over(status, incarnations[node]):
                system.broker(node).process.kill()
        start_again(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(Terminate):
    """Terminate, and start again as soon as the broker is dead (`kill=True`: with SIGKILL)."""

    kind: ClassVar[str] = "restart"
    words: ClassVar[str] = "was restarted"
    own_mark: ClassVar[str] = "↻"
    kill: bool = False
    seconds: Seconds | None = 0.0

    def inject(self, system: System, injection: Injection) -> None:
        """End each broker once."""
        hit_once(system, injection, lambda broker: broker.process.kill() if self.kill else broker.process.terminate())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(ProcessFault):
    """SIGSTOP, later SIGCONT: a long garbage collection. A broker whose session expires meanwhile is a zombie."""

    kind: ClassVar[str] = "pause"
    words: ClassVar[str] = "was paused"
    holds: ClassVar[Hold | None] = Hold.PAUSED
    moves_leaders: ClassVar[bool] = True

    def inject(self, system: System, injection: Injection) -> None:
        """Pause each broker once."""
        hit_once(system, injection, lambda broker: broker.process.pause())

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether every broker is paused."""
        found = statuses(system, injection)
        proved = bool(found) and all(status.state == PAUSED for status in found.values())
        return Evidence(proved=proved, facts=shown(found))

    def heal(self, system: System, injection: Injection) -> None:
        """Resume each affected broker, also one that is not paused yet: SIGCONT discards a SIGSTOP that waits."""
        for node, status in statuses(system, injection).items():
            if status.state != DEAD:
                system.broker(node).process.resume()
        start_again(system, injection)
