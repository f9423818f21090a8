"""Faults at named places in the broker's code (K6): crash, stop, delay or error at the n-th hit.

`harrow failpoints` lists the places. A crashed broker is started again, a stopped broker is resumed, a place that
was not reached is disarmed. Proof of a crash: the incarnation that was armed is over. Proof of a stop: the broker
is paused. Else: the broker's own count of what fired.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import ClassVar

from .errors import ConfigError
from .evidence import Evidence
from .process_faults import ProcessFault, running_again, shown, start_again, statuses
from .rules import arm_once, armed_in, disarm, disarmed, fired
from .spec import Fault, Injection, Seconds
from .system import PAUSED, System
from .targets import Target

ACTIONS = ("crash", "stop", "delay", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failpoint(ProcessFault):
    """Arm a failpoint on each broker of the target."""

    kind: ClassVar[str] = "failpoint"
    needs: ClassVar[frozenset[str]] = frozenset({"failpoints", "process"})
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
            raise ConfigError(
                f"failpoint(nth={self.nth}, delay_ms={self.delay_ms}): expected nth from 1 up, delay_ms from 0 up"
            )

    @property
    def disturbs(self) -> bool:
        """A crashed or stopped broker is down."""
        return self.action in ("crash", "stop")

    def inject(self, system: System, injection: Injection) -> None:
        """Arm it once on each broker."""
        arm_once(
            system, injection,
            lambda broker: broker.arm_failpoint(
                name=self.point, action=self.action, nth=self.nth, delay_ms=self.delay_ms
            ),
        )  # fmt: skip

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether it acted on at least one broker."""
        found = statuses(system, injection)
        if self.action == "stop":
            proved = any(status.state == PAUSED for status in found.values())
            return Evidence(proved=proved, facts={"failpoint": self.point, **shown(found)})
        facts = fired(system, injection, death_counts=self.action == "crash")
        proved = any(fact["fired"] for fact in facts.values())
        return Evidence(proved=proved, facts={"failpoint": self.point, "brokers": facts})

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
    """At the n-th time that the broker's code reaches `name`: crash, stop, delay or error."""
    return Failpoint(
        target=target,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - as_target
        point=name,
        action=action,
        nth=nth,
        delay_ms=delay_ms,
        seconds=seconds,
    )
