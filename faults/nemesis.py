"""The nemesis: runs a schedule against a cluster, proves each fault, ends healed.

It owns one thread. The first fault waits for the first traffic. A step fires when its time has come and
the cap allows (never more brokers disturbed at once than the schedule's `cap`), stays from its proved
effect for its duration, and is healed, which is proved too. Steps without a time of their own come one
after another. While a fault hides the cluster (the registry is away) nothing else fires or is healed.

`faults.jsonl`, one object a line: `t_ns` (monotonic), `event` (`inject`, `effect`, `heal`, `healed`,
`skipped`), `id`, `fault`, `label`, `targets`, `evidence`. The line is written before the act it tells of
begins (`inject`, `heal`) or after the proof (`effect`, `healed`).

However a run ends, `stop()` leaves nothing unhealed; what went wrong is raised there as one
NemesisError: a fault without effect, a required step that never fired, a fault that would not heal.
Source: Jepsen's nemesis; the cap is its rule never to break more than the test may survive.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harrow.cluster.errors import HarrowError

from .errors import NemesisError, TargetError
from .schedule import SCHEMA_VERSION, Schedule, Step
from .spec import Evidence, Injection
from .system import System, look_at
from .traffic import HasTraffic, HighWatermarks

TICK_S = 0.01
EFFECT_TIMEOUT_S = 15.0
HEAL_TIMEOUT_S = 60.0
WAIT_TIMEOUT_S = 30.0
"""How long a step waits for its role to be filled, or for the cap."""
GRACE_S = 3.0
"""How long `finish` waits for a fault that needs traffic when no more traffic may come."""


@dataclass(slots=True, kw_only=True)
class _Active:
    """A fault that is on."""

    step: Step
    injection: Injection
    deadline: float
    heal_at: float | None = None

    @property
    def waits(self) -> bool:
        """Whether only traffic can bring its effect."""
        return self.heal_at is None and self.injection.fault.waits_for_traffic


class Nemesis:
    """Runs `schedule` in a thread of its own from `start()` to `stop()`; also a context manager."""

    def __init__(
        self,
        system: System,
        schedule: Schedule,
        *,
        log: Path | str | None = None,
        has_traffic: HasTraffic | None = None,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = TICK_S,
        effect_timeout_s: float = EFFECT_TIMEOUT_S,
        wait_timeout_s: float = WAIT_TIMEOUT_S,
    ) -> None:
        self._system = system
        self._plan = schedule
        self._rng = random.Random(schedule.seed)  # noqa: S311 - repeatable, not secret
        self._log = None if log is None else Path(log)
        self._has_traffic = has_traffic
        self._clock = clock
        self._tick_s = tick_s
        self._effect_timeout_s = effect_timeout_s
        self._wait_timeout_s = wait_timeout_s
        self._steps = list(schedule.steps)
        self._next = 0
        self._active: list[_Active] = []
        self._problems: list[str] = []
        self._traffic_at: float | None = None
        self._healed_at: float | None = None
        self._closing_at: float | None = None
        self._stop = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harrow-nemesis", daemon=True)
        self.effects = 0
        """Faults whose effect was proved so far."""

    # ------------------------------------------------------------------------------------- life

    def __enter__(self) -> Nemesis:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to wait for traffic."""
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Let the schedule end by itself, no more traffic expected; False when it did not in time."""
        self._closing_at = self._clock()
        return self._done.wait(timeout_s)

    def stop(self) -> None:
        """Fire nothing more, heal everything, join; NemesisError tells what went wrong, once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        problems, self._problems = self._problems, []
        if problems:
            raise NemesisError("; ".join(problems))

    @property
    def schedule(self) -> Schedule:
        """The schedule with what was resolved so far: written to a file it repeats this run."""
        return replace(self._plan, steps=tuple(self._steps))

    @property
    def running(self) -> bool:
        """Whether its thread still works."""
        return self._thread.is_alive()

    # ----------------------------------------------------------------------------------- thread

    def _run(self) -> None:
        try:
            if self._await_traffic():
                while not self._stop.is_set() and (self._next < len(self._steps) or self._active):
                    self._turn()
                    self._stop.wait(self._tick_s)
        except BaseException as error:  # a bug of ours must not leave a cluster broken
            self._problems.append(f"the nemesis failed: {error!r}")
        finally:
            self._wind_up()
            self._done.set()

    def _await_traffic(self) -> bool:
        if self._has_traffic is None:
            self._has_traffic = HighWatermarks(self._system)
        while not self._stop.is_set():
            if self._has_traffic():
                self._traffic_at = self._clock()
                return True
            if self._closing_at is not None and self._clock() > self._closing_at + self._tick_s:
                return False
            self._stop.wait(self._tick_s)
        return False

    def _turn(self) -> None:
        now = self._clock()
        for active in list(self._active):
            if active.heal_at is None:
                self._look_for_effect(active)
            elif now >= active.heal_at and not self._hidden_from(active):
                self._heal(active)
        if self._next < len(self._steps):
            self._try_to_fire(self._steps[self._next], now)

    def _try_to_fire(self, step: Step, now: float) -> None:
        if not step.required and self._is_over(now):
            self._steps[self._next :] = [one for one in self._steps[self._next :] if one.required]
            return
        due = self._due(step)
        if due is None or now < due or self._hidden_from(None):
            return
        try:
            injection = self._resolve(step)
        except HarrowError as error:
            # A TargetError, or a registry that does not answer at the moment: it may change.
            if now > due + self._wait_timeout_s:
                self._skip(step, str(error))
            return
        if injection is None:
            if not self._active:
                self._skip(step, f"it would disturb more brokers than the cap, {self._plan.cap}")
            elif now > due + self._wait_timeout_s:
                self._skip(step, "the cap did not allow it in time")
            return
        self._next += 1
        self._inject(step, injection)

    def _is_over(self, now: float) -> bool:
        """Whether the block ended or its duration passed: what need not fire is dropped."""
        assert self._traffic_at is not None
        duration_ms = self._plan.duration_ms
        late = duration_ms is not None and now > self._traffic_at + duration_ms / 1000
        return late or self._closing_at is not None

    def _due(self, step: Step) -> float | None:
        assert self._traffic_at is not None
        after = step.at_ms / 1000
        if step.trigger == "traffic":
            return self._traffic_at + after
        if self._active:
            return None
        return (self._healed_at or self._traffic_at) + after

    def _hidden_from(self, active: _Active | None) -> bool:
        """Whether another fault hides the cluster: asking it would hang, and a broker would not start."""
        return any(one.injection.fault.hides_cluster for one in self._active if one is not active)

    def _resolve(self, step: Step) -> Injection | None:
        """Return who and how long; None while the cap forbids it."""
        disturbed = self._disturbed()
        scene = look_at(self._system, disturbed)
        injection = step.fault.resolve(scene, self._rng, id=step.id) if step.nodes is None else None
        if injection is None:  # a replay
            assert step.nodes is not None
            if not set(step.nodes) <= scene.running:
                raise TargetError(f"step {step.id}: brokers {list(step.nodes)} do not all run now")
            injection = Injection(id=step.id, fault=step.fault, nodes=step.nodes, duration_ms=0)
        if step.nodes is not None or step.duration_ms is not None:
            drawn = step.fault.draw_duration_ms(scene, self._rng)
            injection = replace(
                injection,
                duration_ms=drawn if step.duration_ms is None else step.duration_ms,
                details=injection.details if step.details is None else step.details,
            )
        if step.fault.disturbs and len(disturbed | set(injection.nodes)) > self._plan.cap:
            return None
        return injection

    def _disturbed(self) -> frozenset[int]:
        held = (one.injection for one in self._active if one.injection.fault.disturbs)
        return frozenset(node for injection in held for node in injection.nodes)

    def _inject(self, step: Step, injection: Injection) -> None:
        now = self._clock()
        fired_ms = round((now - (self._traffic_at or now)) * 1000)
        self._steps[self._next - 1] = step.fired(injection, fired_ms)
        active = _Active(step=step, injection=injection, deadline=now + self._effect_timeout_s)
        self._active.append(active)
        self._write(
            "inject", injection, {"duration_ms": injection.duration_ms, **injection.details}
        )
        try:
            injection.fault.inject(self._system, injection)
        except HarrowError as error:
            self._problems.append(f"{injection.fault} could not be injected: {error}")
            self._heal(active)
            return
        self._look_for_effect(active)

    def _look_for_effect(self, active: _Active) -> None:
        injection = active.injection
        evidence = _probed(injection.fault.probe, self._system, injection)
        now = self._clock()
        if evidence.proved:
            self.effects += 1
            active.heal_at = now + injection.duration_ms / 1000
            self._write("effect", injection, evidence.facts)
        elif now > self._effect_deadline(active):
            why = "no traffic brought it about" if active.waits else f"seen: {dict(evidence.facts)}"
            self._problems.append(
                f"{injection.fault} on brokers {list(injection.nodes)} had no effect ({why})"
            )
            self._heal(active)

    def _effect_deadline(self, active: _Active) -> float:
        if not active.waits:
            return active.deadline
        return float("inf") if self._closing_at is None else self._closing_at + GRACE_S

    def _heal(self, active: _Active) -> None:
        """Undo one fault and prove it; what fails is a problem, never an exception."""
        injection = active.injection
        self._write("heal", injection, {})
        deadline = self._clock() + HEAL_TIMEOUT_S
        error, evidence = "", Evidence(proved=False)
        while not evidence.proved and self._clock() < deadline:
            try:
                injection.fault.heal(self._system, injection)
                evidence = injection.fault.probe_healed(self._system, injection)
            except HarrowError as raised:
                error = str(raised)
            if not evidence.proved:
                threading.Event().wait(self._tick_s)
        if evidence.proved:
            self._write("healed", injection, evidence.facts)
        else:
            self._problems.append(f"{injection.fault} was not healed: {error or evidence.facts}")
        self._active.remove(active)
        self._healed_at = self._clock()

    def _skip(self, step: Step, reason: str) -> None:
        self._next += 1
        self._write_skipped(step, reason)
        if step.required:
            self._problems.append(f"{step.fault} never fired: {reason}")

    def _wind_up(self) -> None:
        # the registry first: brokers need it to start
        for active in sorted(self._active, key=lambda one: not one.injection.fault.hides_cluster):
            if active.heal_at is None:
                self._last_look(active)
            try:
                self._heal(active)
            except BaseException as error:  # the others are healed all the same
                self._problems.append(f"{active.injection.fault} was not healed: {error!r}")
        ended = "no traffic came" if self._traffic_at is None else "the run ended before its turn"
        while self._next < len(self._steps):
            self._skip(self._steps[self._next], ended)

    def _last_look(self, active: _Active) -> None:
        injection = active.injection
        evidence = _probed(injection.fault.probe, self._system, injection)
        if evidence.proved:
            self.effects += 1
            self._write("effect", injection, evidence.facts)
        elif active.step.required:
            self._problems.append(f"{injection.fault} had no effect before the run ended")

    # -------------------------------------------------------------------------------------- log

    def _write(self, event: str, injection: Injection, evidence: Any) -> None:
        self._append(
            event,
            id=injection.id,
            fault=injection.fault.kind,
            label=str(injection.fault),
            targets=list(injection.nodes),
            evidence=dict(evidence),
        )

    def _write_skipped(self, step: Step, reason: str) -> None:
        self._append(
            "skipped",
            id=step.id,
            fault=step.fault.kind,
            label=str(step.fault),
            targets=list(step.nodes or ()),
            evidence={"reason": reason},
        )

    def _append(self, event: str, **fields: Any) -> None:
        if self._log is not None:
            line = {
                "t_ns": time.monotonic_ns(),
                "schema_version": SCHEMA_VERSION,
                "event": event,
                **fields,
            }
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=str) + "\n")


def _probed(
    probe: Callable[[System, Injection], Evidence], system: System, injection: Injection
) -> Evidence:
    """Call a probe; a process that does not answer is evidence of nothing."""
    try:
        return probe(system, injection)
    except HarrowError as error:
        return Evidence(proved=False, facts={"error": str(error)})
