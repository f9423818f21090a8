"""Faults of the user's programs (`harrow.program`): kill, pause, terminate; by name, or a program that the seed draws.

`kill_program`       SIGKILL: now, or at the n-th request of an API (`before="OffsetCommit"`: the request is held, so
                     that it has no effect; `after="OffsetCommit"`: it takes effect, and its response is held). Healed:
                     the program is started again (`restart=False`: it stays dead)
`pause_program`      SIGSTOP, later SIGCONT: longer than its session or its transaction's timeout, it is a zombie
`terminate_program`  SIGTERM, and a start when it has ended: a deployment

Evidence: the process is dead, or paused, as the kernel says; of a request, the rule of a broker that held it. A restart
is proved by the program's next incarnation. A program that ends by itself while a fault waits makes the fault fail,
with the last lines of its output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .client_faults import NamedFault, checked_name, listed
from .controls import DEAD, PAUSED, RUNNING, ProgramControl
from .errors import ConfigError, TargetError
from .evidence import Evidence
from .process_faults import is_over
from .request_checks import api_key
from .rule_kinds import RequestRule
from .rules import arm_once, disarm, disarmed, fired
from .spec import FaultState, Hold, Injection, Seconds
from .system import ClusterSnapshot, System
from .unreached_words import no_request


@dataclass(slots=True, kw_only=True)
class ProgramState(FaultState):
    """What happened to the program."""

    hit: int | None = None
    """The incarnation of the program that the fault affected."""
    armed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By broker: what the rule has seen that waits for the program's request."""
    request: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The same of the rules that acted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFault(NamedFault):
    """A fault of one program."""

    needs: ClassVar[frozenset[str]] = frozenset({"programs"})
    state_type: ClassVar[type[FaultState]] = ProgramState
    touches_programs: ClassVar[bool] = True
    named_by: ClassVar[str] = "program"
    program: str | None = None

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        if self.program is not None:
            checked_name(self.program, self.kind, "program")

    def check_system(self, system: System) -> None:
        """Raise ConfigError for a program that does not exist, or where there is none to draw."""
        names = system.programs
        if self.program is None and not names:
            raise ConfigError(f"{self}: there is no program; start one first: harrow.program('billing', [...])")
        if self.program is not None and self.program not in names:
            raise ConfigError(
                f"{self}: there is no program {self.program!r}; programs: {listed(names)}. "
                f"Start it before the faults begin: harrow.program({self.program!r}, [...])"
            )

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the program where none is named."""
        if self.program is not None:
            return {"program": self.program}
        if not snapshot.programs:
            raise TargetError(f"{self}: there is no program at this moment")
        return {"program": rng.choice(snapshot.programs)}

    def control(self, system: System, injection: Injection) -> ProgramControl:
        """Return the program."""
        return system.programs[self.name_in(injection)]

    def name_in(self, injection: Injection) -> str:
        """Return the name of the program that was drawn, or that the fault names."""
        return str(injection.details.get("program", self.program))

    def ended_by_itself(self, system: System, injection: Injection) -> str:
        """Return what to say of a program that is dead without this fault; empty while it lives."""
        program = self.control(system, injection)
        if ProgramState.of(injection).hit is not None or program.status().state != DEAD:
            return ""
        return f"the program {self.name_in(injection)!r} had ended by itself: {program.last_words()}"

    def facts(self, system: System, injection: Injection) -> dict[str, Any]:
        """Return what the kernel says of the program."""
        return {"programs": {self.name_in(injection): self.control(system, injection).status().to_json()}}

    def hit(self, system: System, injection: Injection, act: Callable[[ProgramControl], None]) -> None:
        """Call `act` for the program that lives, once."""
        program = self.control(system, injection)
        status = program.status()
        state = ProgramState.of(injection)
        if state.hit is None and status.state != DEAD:
            state.hit = status.incarnation
            act(program)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingFault(ProgramFault):
    """A fault that ends the program; it is started again."""

    holds: ClassVar[Hold | None] = Hold.DEAD

    def hit_is_over(self, system: System, injection: Injection) -> bool:
        """Whether the affected incarnation has ended."""
        hit = ProgramState.of(injection).hit
        return hit is not None and is_over(self.control(system, injection).status(), hit)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the affected incarnation has ended."""
        return Evidence(
            proved=self.hit_is_over(system, injection),
            facts=self.facts(system, injection),
            failed=self.ended_by_itself(system, injection),
        )

    def start_again(self, system: System, injection: Injection) -> None:
        """Start the program when the affected incarnation has ended, once."""
        program, hit = self.control(system, injection), ProgramState.of(injection).hit
        status = program.status()
        if hit is not None and status.state == DEAD and status.incarnation == hit:
            program.start()

    def started_again(self, system: System, injection: Injection) -> Evidence:
        """Observe whether a later incarnation was started."""
        hit = ProgramState.of(injection).hit
        status = self.control(system, injection).status()
        proved = hit is None or status.incarnation > hit
        return Evidence(proved=proved, facts=self.facts(system, injection))


@dataclass(frozen=True, slots=True, kw_only=True)
class KillProgram(EndingFault):
    """SIGKILL, now or at a request of the program's."""

    kind: ClassVar[str] = "kill_program"
    words: ClassVar[str] = "was killed and dead"
    waits_for_traffic: ClassVar[bool] = True
    before: str | int | None = None
    after: str | int | None = None
    nth: int = 1
    client: str = "*"
    restart: bool = True

    def __post_init__(self) -> None:
        EndingFault.__post_init__(self)
        if self.before is not None and self.after is not None:
            raise ConfigError("kill_program(before=…, after=…): expected one of both")
        if self.api is not None:
            api_key(self.api, self.kind)
        elif (self.nth, self.client) != (1, "*"):
            raise ConfigError("kill_program(nth=…, client=…): name a request too: before='OffsetCommit'")
        if self.nth < 1:
            raise ConfigError(f"kill_program(nth={self.nth}): expected a number from 1 up")

    @property
    def api(self) -> str | int | None:
        """The API of the request at which the program is killed; None: it is killed at once."""
        return self.before if self.before is not None else self.after

    def capabilities(self) -> frozenset[str]:
        """Name what a backend must be able to do."""
        return self.needs if self.api is None else self.needs | {"responses"}

    def rule(self) -> RequestRule:
        """Return the rule of the brokers: it holds the request, or its response: the program waits."""
        assert self.api is not None
        key = int(api_key(self.api, self.kind))
        action = "hold_response" if self.before is None else "drop"
        return RequestRule(action=action, api_key=key, nth=self.nth, client=self.client)

    def inject(self, system: System, injection: Injection) -> None:
        """Kill the program, or arm the rule on every broker that runs."""
        if self.api is None:
            self.hit(system, injection, lambda program: program.kill())
        elif ProgramState.of(injection).hit is None:
            running = (n for n in system.nodes if system.broker(n).status().state == RUNNING)
            arm_once(system, injection, self.rule(), running)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Kill the program as soon as a rule acted; then no other rule may act on the restarted program."""
        del now_ms
        state = ProgramState.of(injection)
        if self.api is None or state.hit is not None:
            return
        facts = fired(system, injection, death_counts=False)
        state.armed = facts
        if any(fact["fired"] for fact in facts.values()):
            self.hit(system, injection, lambda program: program.kill())
            state.request = {n: fact for n, fact in facts.items() if fact["fired"]}
            disarm(system, injection)
        else:
            self.inject(system, injection)  # brokers that run since

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the program is dead, after its request."""
        found = EndingFault.probe(self, system, injection)
        state = ProgramState.of(injection)
        rules = {"request": state.request} if state.request else {"brokers": state.armed} if state.armed else {}
        return replace(found, facts={**found.facts, **rules})

    def unreached(self, injection: Injection, facts: Mapping[str, Any]) -> str:
        """Say which clients used the API, and which did not."""
        if self.api is None:
            return EndingFault.unreached(self, injection, facts)
        key = int(api_key(self.api, self.kind))
        return no_request(key, self.client, self.nth, facts.get("brokers", {}))

    def heal(self, system: System, injection: Injection) -> None:
        """Disarm what is armed, and start the program."""
        disarm(system, injection)
        if self.restart:
            self.start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether no rule is left, and the program was started again."""
        facts = self.facts(system, injection)
        running = Evidence(proved=self.hit_is_over(system, injection), facts=facts)
        if self.restart or ProgramState.of(injection).hit is None:
            running = self.started_again(system, injection)
        return disarmed(system, injection, running)


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateProgram(EndingFault):
    """SIGTERM, and a start when it has ended; a program that does not end is killed at healing."""

    kind: ClassVar[str] = "terminate_program"
    words: ClassVar[str] = "was shut down and dead"
    effect_timeout_ms: ClassVar[int] = 30_000
    """How long the program may take to end."""
    seconds: Seconds | None = 0.0

    def inject(self, system: System, injection: Injection) -> None:
        """Terminate the program."""
        self.hit(system, injection, lambda program: program.terminate())

    def heal(self, system: System, injection: Injection) -> None:
        """Start the program; kill one that has not ended."""
        if ProgramState.of(injection).hit is not None and not self.hit_is_over(system, injection):
            self.control(system, injection).kill()
        self.start_again(system, injection)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the program was started again."""
        return self.started_again(system, injection)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseProgram(ProgramFault):
    """SIGSTOP, later SIGCONT."""

    kind: ClassVar[str] = "pause_program"
    words: ClassVar[str] = "was paused"
    holds: ClassVar[Hold | None] = Hold.PAUSED

    def inject(self, system: System, injection: Injection) -> None:
        """Pause the program."""
        self.hit(system, injection, lambda program: program.pause())

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the program is paused."""
        return Evidence(
            proved=self.control(system, injection).status().state == PAUSED,
            facts=self.facts(system, injection),
            failed=self.ended_by_itself(system, injection),
        )

    def heal(self, system: System, injection: Injection) -> None:
        """Let the program continue: SIGCONT discards a SIGSTOP that waits."""
        if ProgramState.of(injection).hit is not None:
            self.control(system, injection).resume()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the program is not paused; one that ended meanwhile is not."""
        state = self.control(system, injection).status().state
        return Evidence(proved=state != PAUSED, facts=self.facts(system, injection))


@checked
def kill_program(
    program: str | None = None,
    *,
    before: str | int | None = None,
    after: str | int | None = None,
    nth: int = 1,
    client: str = "*",
    restart: bool = True,
    seconds: Seconds | None = None,
) -> KillProgram:
    """SIGKILL to a program of `harrow.program`; it is started again after `seconds`.

    `before="OffsetCommit"`: when its n-th OffsetCommit has reached a broker, which does not serve it: the crash between
    the work and the commit. `after="OffsetCommit"`: the broker serves it, and its response does not leave. `client`: a
    pattern of the `client.id` whose requests count. `restart=False`: it stays dead. Without a name the seed draws one.
    """
    return KillProgram(
        program=program, before=before, after=after, nth=nth, client=client, restart=restart, seconds=seconds
    )


@checked
def pause_program(program: str | None = None, *, seconds: Seconds | None = None) -> PauseProgram:
    """SIGSTOP to a program for `seconds`; longer than the timeout of its session, it is a zombie afterwards."""
    return PauseProgram(program=program, seconds=seconds)


@checked
def terminate_program(program: str | None = None, *, seconds: Seconds | None = 0.0) -> TerminateProgram:
    """SIGTERM to a program, and a start `seconds` after it has ended: a deployment."""
    return TerminateProgram(program=program, seconds=seconds)
