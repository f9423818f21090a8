"""Faults at named places in the broker's code (K6): crash, stop, delay or error at the n-th hit.

`harrow failpoints` lists the places. A crashed broker is started again, a stopped one goes on, a place
that was not reached is disarmed. Proof of a crash is the dead process, of a stop its state, else the
host's count of what fired.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, ClassVar

from .errors import ConfigError
from .process import gone, process_state, running_again, start_again
from .spec import Evidence, Fault, Injection, Seconds
from .system import System
from .targets import Target

ACTIONS = ("crash", "stop", "delay", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint(Fault):
    """Arm a failpoint on each broker of the target."""

    kind: ClassVar[str] = "failpoint"
    waits_for_traffic: ClassVar[bool] = True
    point: str = ""
    action: str = "crash"
    nth: int = 1
    delay_ms: int = 0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        check_name(self.point)
        if self.action not in ACTIONS:
            raise ConfigError(f"failpoint(action={self.action!r}): expected {', '.join(ACTIONS)}")
        if self.nth < 1 or self.delay_ms < 0:
            raise ConfigError(f"failpoint(nth={self.nth}, delay_ms={self.delay_ms}): too small")

    @property
    def disturbs(self) -> bool:
        """A crashed or stopped broker is down."""
        return self.action in ("crash", "stop")

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        pids: dict[int, int | None] = injection.notes.setdefault("pids", {})
        for node in injection.nodes:
            if node not in pids:
                pids[node] = system.brokers[node].pid
                system.control(
                    node,
                    "failpoint.arm",
                    name=self.point,
                    action=self.action,
                    nth=self.nth,
                    delay_ms=self.delay_ms,
                )

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe that it acted on one broker at least."""
        pids: dict[int, int | None] = injection.notes.get("pids", {})
        seen = {str(node): self._seen(system, node, pid) for node, pid in pids.items()}
        proved = any(fact.get("fired") for fact in seen.values())
        return Evidence(proved=proved, facts={"failpoint": self.point, "nodes": seen})

    def _seen(self, system: System, node: int, pid: int | None) -> dict[str, Any]:
        if self.action == "crash":
            dead = gone(pid)
            return {"pid": pid, "fired": dead, "process": process_state(pid) or "gone"}
        if self.action == "stop":
            state = process_state(pid)
            return {"pid": pid, "fired": state in ("T", "t"), "process": state}
        rows: list[dict[str, Any]] = system.control(node, "failpoints").get("failpoints", [])
        mine = [row for row in rows if row.get("name") == self.point]
        return mine[0] if mine else {}

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what did not fire, let go on what stands still, start what is dead."""
        for node in injection.nodes:
            broker = system.brokers[node]
            if broker.alive:
                broker.resume()
                system.control(node, "failpoint.disarm", name=self.point)
        start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Brokers run and nothing is armed."""
        running = running_again(system, injection)
        armed = [
            row
            for node in injection.nodes
            for row in system.control(node, "failpoints").get("failpoints", [])
            if row.get("name") == self.point and row.get("armed")
        ]
        proved = running.proved and not armed
        return Evidence(proved=proved, facts={**running.facts, "armed": armed})


def check_name(name: str) -> None:
    """Raise ConfigError for a place that no code declares."""
    from harrow.cluster.host.seam.failpoints import DECLARED

    if name not in DECLARED:
        near = difflib.get_close_matches(name, DECLARED, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(DECLARED)}"
        raise ConfigError(f"failpoint {name!r}: no such place in the code{hint}")


def failpoint(
    name: str,
    target: Target | int,
    action: str = "crash",
    *,
    nth: int = 1,
    delay_ms: int = 0,
    seconds: Seconds | None = None,
) -> Failpoint:
    """At the n-th time that the broker's code comes to `name`: crash, stop, delay or error."""
    return Failpoint(
        target=target,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
        point=name,
        action=action,
        nth=nth,
        delay_ms=delay_ms,
        seconds=seconds,
    )
