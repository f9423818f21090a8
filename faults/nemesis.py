"""The nemesis: runs a schedule against a cluster, proves each fault, ends healed. It has no thread and no clock.

Its driver calls `turn(now_ms)` repeatedly. Each turn fires the steps that are due, probes the active faults, and
returns the time of the next turn (None: the schedule is over). A turn never waits. `BackgroundNemesis` drives it by a
thread and the wall clock, a simulation by its virtual loop, so that a schedule has the same meaning on both.

    waiting   the first fault waits for the first traffic, two minutes at most
    running   a step fires when it is due and the cap allows it
    ending    after `stop`, or when no step is left: every active fault is healed

A step does not fire while it would disturb more brokers than the schedule's `cap`. A fault lasts for its duration,
which begins when its effect is proved; then the nemesis heals it and proves the healing. A step with the trigger
`healed` waits until every earlier step is healed, and every later step waits for it. Steps with the trigger `traffic`
do not wait for each other: while no broker plays the role of such a step, later steps fire. A replayed step does not
fire before the time at which it was recorded (`fired_ms`).

A step with the trigger `events` fires after its events (`ScheduledFault.after`), which may be those of steps that are
not healed. Its events can no longer happen when the step that they name is over without them, or when no fault is
active for `WAIT_TIMEOUT_MS`; then a required step is a failure, another one is dropped. A fault with `until` heals at
these events. A step that is not required is dropped when the duration of the schedule has passed and no fault is
active; it heals without an effect when its `until` has happened, or the duration has passed, before it had any.

A fault that waits for a request or a line of code gives up after a bounded time of traffic (`traffic_wait.py`).

While a fault hides the cluster (the registry does not run) roles are resolved against the last known view, and the
deadline of a broker that is being started is extended until the registry runs again.

For each event `write` receives a row (`fault_rows.py`). The rows `inject` and `heal` are written before the action,
`effect` and `healed` after the proof.

A failure is a line in `problems`, never an exception: a fault without effect, a required step that never fired, a fault
that could not be healed, a bug in a fault. Source: Jepsen's nemesis; the cap is its rule never to break more nodes than
the test may survive.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from harrow.cluster.errors import HarrowError
from harrow.cluster.view import ClusterView

from .active_fault import NEXT, ActiveFault, Phase
from .bounds import (
    EFFECT_TIMEOUT_MS,
    END_TIMEOUT_MS,
    FIRST_TRAFFIC,
    FIRST_TRAFFIC_TIMEOUT_MS,
    GRACE_MS,
    HEAL_TIMEOUT_MS,
    NO_TRAFFIC,
    WAIT_TIMEOUT_MS,
    waiting_for,
)
from .event_watch import EventWatch
from .evidence import Evidence
from .fault_rows import FaultRows, Row
from .frame_wait import FrameWait
from .schedule import EVENTS, UNTIL_MOST_MS, Schedule, ScheduledFault, check_events, check_nodes
from .spec import TICK_MS, Injection
from .system import ClusterSnapshot, HasTraffic, System, check_capabilities, take_snapshot
from .target_checks import check_created
from .traffic_wait import REACHED_WITHIN_MS, TrafficWait


class Nemesis:
    """Runs `schedule` on `system`; see the module's head.

    CapabilityError and ConfigError are raised before any fault is injected.
    """

    def __init__(
        self,
        system: System,
        schedule: Schedule,
        *,
        write: Callable[[Row], None] | None = None,
        has_traffic: HasTraffic | None = None,
        effect_timeout_ms: int = EFFECT_TIMEOUT_MS,
        wait_timeout_ms: int = WAIT_TIMEOUT_MS,
        reached_within_ms: int = REACHED_WITHIN_MS,
    ) -> None:
        for step in schedule.steps:
            check_capabilities(system, step.fault, step.fault.capabilities())
            check_nodes(step, system.nodes)
            step.fault.check_system(system)
        check_events(schedule)
        assert effect_timeout_ms > 0 and wait_timeout_ms >= 0, "a nemesis waits for a time"
        self._system = system
        self._plan = schedule
        self._rng = random.Random(schedule.seed)  # noqa: S311 - repeatable, not secret
        self._has_traffic = system.watch_traffic() if has_traffic is None else has_traffic
        watch = system.watch_traffic if has_traffic is None else lambda: self._has_traffic
        self._traffic_wait = TrafficWait(watch, reached_within_ms)
        self._effect_timeout_ms = effect_timeout_ms
        self._wait_timeout_ms = wait_timeout_ms
        self._steps = list(schedule.steps)
        self._waiting = list(range(len(self._steps)))
        """Indexes of the steps that have neither fired nor been skipped."""
        self._active: list[ActiveFault] = []
        self._view: ClusterView | None = None
        self._events = EventWatch(system, schedule.steps)
        self._now_ms = 0
        self._begun_ms: int | None = None
        self._traffic_ms: int | None = None
        self._healed_ms: int | None = None
        self._closing_ms: int | None = None
        self._stopping = False
        self.over = False
        """True when no step waits and no fault is active."""
        self.effects = 0
        """Faults whose effect was proved so far."""
        self.problems: list[str] = []
        """Failures, in order of time."""
        self._rows, self.frames = FaultRows(write, self.problems), FrameWait(system)

    @property
    def schedule(self) -> Schedule:
        """The schedule with what was resolved so far: written to a file, it repeats this run.

        Steps that were dropped without need are not in it.
        """
        kept = (step for step in self._steps if step.nodes is not None or step.required)
        return replace(self._plan, steps=tuple(kept) if self.over else tuple(self._steps))

    @property
    def waits_for(self) -> str:
        """What it waits for at this moment, beyond the durations of its faults; empty when it is over."""
        if self.over:
            return ""
        if self._traffic_ms is None:
            return FIRST_TRAFFIC
        waiting = (self._steps[number] for number in self._waiting)
        due = ((step, self._due_ms(step)) for step in waiting if not self._active)
        late = [step for step, at_ms in due if at_ms is None or at_ms <= self._now_ms]
        closing = self._closing_ms is not None
        return waiting_for(self._active, late, self._now_ms, closing=closing)

    # --------------------------------------------------------------------------------- the host's

    @property
    def has_begun(self) -> bool:
        """Whether every step fired, and each of the faults had its effect or waits for traffic."""
        return not self._waiting and all(active.has_begun for active in self._active)

    def finish(self, now_ms: int) -> None:
        """No more traffic is expected: fire what is required, and come to an end."""
        assert now_ms >= self._now_ms, f"the clock of the nemesis went back from {self._now_ms} to {now_ms}"
        if self._closing_ms is None:
            self._closing_ms = now_ms

    def stop(self) -> None:
        """Fire no further step, and heal every active fault in the next turns."""
        self._stopping = True

    def turn(self, now_ms: int) -> int | None:
        """Do what is due; return the time of the next turn, None when the schedule is over."""
        if self.over:
            return None
        assert now_ms >= self._now_ms, f"the clock of the nemesis went back from {self._now_ms} to {now_ms}"
        self._now_ms = now_ms
        if self._begun_ms is None:
            self._begun_ms = now_ms
        self._traffic_wait.look(self._active, now_ms, held=self._something_else_acts())
        for active in list(self._active):
            self._guarded(active, self._continue)
        try:
            self._advance()
        except Exception as error:  # a bug of ours must not leave a cluster broken
            self.problems.append(f"the nemesis failed: {error!r}")
            self._stopping = True
        if not self._active and (self._stopping or not self._waiting):
            self._end()
        return None if self.over else now_ms + TICK_MS

    # ------------------------------------------------------------------------------------- phases

    def _advance(self) -> None:
        if self._stopping:
            return
        if self._traffic_ms is None:
            if self._has_traffic():
                self._traffic_ms = self._now_ms
                self._events.traffic_began(self._view)
            else:
                self._stopping = self._no_traffic_will_come()
                return
        for number in list(self._waiting):
            step = self._steps[number]
            self._try_to_fire(number, step)
            if step.trigger == "healed" and number in self._waiting:
                break

    def _no_traffic_will_come(self) -> bool:
        assert self._begun_ms is not None
        late = self._now_ms > self._begun_ms + FIRST_TRAFFIC_TIMEOUT_MS
        return late or (self._closing_ms is not None and self._now_ms > self._closing_ms + TICK_MS)

    def _continue(self, active: ActiveFault) -> None:
        assert active.phase is not Phase.OVER, f"{active.injection.fault} is over and still active"
        if active.phase is Phase.HEALS:
            self._continue_healing(active)
            return
        if self._stopping:
            if active.phase is Phase.TAKES_EFFECT:
                self._probe_last(active)
            self._heal(active)
            return
        self._advance_fault(active)
        if active.phase is Phase.TAKES_EFFECT:
            self._probe_effect(active)
            return
        assert active.heal_at_ms <= self._now_ms + active.injection.duration_ms, "a fault lasts beyond its duration"
        if (self._now_ms >= active.heal_at_ms or self._events.ends(active.step)) and self._is_done(active):
            self._heal(active)

    def _advance_fault(self, active: ActiveFault) -> None:
        injection = active.injection
        with contextlib.suppress(HarrowError):  # a process that does not respond: again later
            injection.fault.advance(self._system, injection, self._now_ms)

    def _is_done(self, active: ActiveFault) -> bool:
        injection = active.injection
        if injection.fault.is_done(injection):
            return True
        late = self._now_ms > active.heal_at_ms + END_TIMEOUT_MS
        if late:
            self.problems.append(f"{injection.fault} did not come to its end in time")
        return late

    def _guarded(self, active: ActiveFault, act: Callable[[ActiveFault], None]) -> None:
        """Call `act`; a bug in a fault ends the run, and every active fault is healed."""
        try:
            act(active)
        except Exception as error:
            self.problems.append(f"{active.injection.fault} failed: {error!r}")
            self._stopping = True
            if Phase.HEALS in NEXT[active.phase]:
                self._guarded(active, self._heal)
            elif active in self._active:
                self._active.remove(active)

    def _end(self) -> None:
        assert not self._active, "the schedule ends while faults are active"
        reason = "the run ended before its turn"
        if self._traffic_ms is None:
            seconds = (self._now_ms - (self._begun_ms or 0)) / 1000
            reason = f"no traffic was detected in {seconds:.0f} s: {NO_TRAFFIC}"
        for number in list(self._waiting):
            self._skip(number, reason)
        assert not self._waiting, f"steps {self._waiting} neither fired nor were skipped"
        self.over = True

    # ------------------------------------------------------------------------------------- firing

    def _try_to_fire(self, number: int, step: ScheduledFault) -> None:
        if not step.required and step.nodes is None and self._is_dropped(step):
            self._waiting.remove(number)
            return
        due_ms = self._due_ms(step)
        hopeless = self._events.hopeless(step)
        if hopeless:
            self._skip(number, hopeless)
        elif due_ms is None and step.trigger == EVENTS and self._is_stuck():
            self._skip(number, f"it waited for {self._events.missing(step)}")
        if hopeless or due_ms is None or self._now_ms < due_ms or self.frames.waits(step, due_ms, self._now_ms):
            return
        late = self._now_ms > due_ms + self._wait_timeout_ms
        disturbed = self._disturbed()
        held = frozenset[int]() if step.overlaps else disturbed
        if step.fault.disturbs and len(disturbed) >= self._plan.cap:
            if late:
                self._skip(number, "the cap did not allow it in time")
            return
        try:
            injection = self._resolve(step, disturbed, held)
        except HarrowError as error:
            # a TargetError, or a registry that does not respond: either may be temporary
            if late:
                self._skip(number, str(error))
            return
        if injection is not None:
            self._waiting.remove(number)
            self._inject(number, injection, due_ms if step.frames else self._now_ms)
        elif not disturbed:
            self._skip(number, f"it would disturb more brokers than the cap, {self._plan.cap}")
        elif late:
            self._skip(number, "the cap did not allow it in time")

    def _is_late(self) -> bool:
        """Whether the block ended or its duration passed: steps that are not required are then dropped."""
        assert self._traffic_ms is not None
        duration_ms = self._plan.duration_ms
        late = duration_ms is not None and self._now_ms > self._traffic_ms + duration_ms
        return late or self._closing_ms is not None

    def _is_dropped(self, step: ScheduledFault) -> bool:
        """Whether it is too late for a step that is not required; events may be those of a fault that lasts."""
        waits = step.trigger == EVENTS and self._active and self._closing_ms is None
        return not waits and self._is_late()

    def _is_stuck(self) -> bool:
        """Whether nothing has happened for long that a step could wait for, and no step is due without events."""
        assert self._traffic_ms is not None
        if not all(self._events.waits(self._steps[number]) for number in self._waiting):
            return False
        since_ms = self._traffic_ms if self._healed_ms is None else self._healed_ms
        return not self._active and (self._closing_ms is not None or self._now_ms > since_ms + self._wait_timeout_ms)

    def _due_ms(self, step: ScheduledFault) -> int | None:
        assert self._traffic_ms is not None
        if step.trigger == EVENTS:
            return self._events.due_ms(step, self._now_ms)
        recorded_ms = 0 if step.nodes is None else step.fired_ms or 0
        if step.trigger == "traffic":
            return self._traffic_ms + max(step.at_ms, recorded_ms)
        if self._active:
            return None
        since_ms = self._traffic_ms if self._healed_ms is None else self._healed_ms
        return max(since_ms + step.at_ms, self._traffic_ms + recorded_ms)

    def _resolve(self, step: ScheduledFault, disturbed: frozenset[int], held: frozenset[int]) -> Injection | None:
        """Return the injection: brokers, none of `held`, and duration; None while the cap forbids it."""
        snapshot = self._look(held)
        if step.overlaps and step.fault.reaches_dead:
            snapshot = replace(snapshot, running=frozenset(snapshot.brokers))
        if step.nodes is None:
            check_created(step.fault, self._system)
            injection = step.fault.resolve(snapshot, self._rng, id=step.id)
        else:
            step.fault.check_nodes(snapshot, step.nodes)
            injection = Injection(id=step.id, fault=step.fault, nodes=step.nodes, duration_ms=0)
        if step.nodes is not None or step.duration_ms is not None:
            drawn_ms = step.fault.draw_duration_ms(snapshot, self._rng)
            injection = replace(
                injection,
                duration_ms=drawn_ms if step.duration_ms is None else step.duration_ms,
                details=injection.details if step.details is None else step.details,
            )
        if step.until and step.duration_ms is None and step.fault.seconds is None:
            injection = replace(injection, duration_ms=UNTIL_MOST_MS)
        hit = injection.fault.disturbed_nodes(injection)
        if step.fault.disturbs and len(disturbed | hit) > self._plan.cap:
            return None
        return injection

    def _look(self, disturbed: frozenset[int]) -> ClusterSnapshot:
        hidden = any(active.injection.fault.hides_cluster for active in self._active)
        snapshot = take_snapshot(self._system, disturbed, view=self._view if hidden else None)
        self._view = snapshot.view
        return snapshot

    def _disturbed(self) -> frozenset[int]:
        held = (active.injection for active in self._active if active.injection.fault.disturbs)
        return frozenset(node for i in held for node in i.fault.disturbed_nodes(i))

    def _inject(self, number: int, injection: Injection, fired_ms: int) -> None:
        assert self._traffic_ms is not None
        assert number not in self._waiting, f"step {injection.id} fires while it waits"
        assert all(active.injection.id != injection.id for active in self._active), f"step {injection.id} fires twice"
        disturbed = self._disturbed() | (
            injection.fault.disturbed_nodes(injection) if injection.fault.disturbs else frozenset[int]()
        )
        assert not injection.fault.disturbs or len(disturbed) <= self._plan.cap, f"{sorted(disturbed)} exceed the cap"
        self._events.began(injection.id)
        step = self._steps[number].fired(injection, fired_ms - self._traffic_ms)
        self._steps[number] = step
        active = ActiveFault(
            step=step,
            injection=injection,
            deadline_ms=self._now_ms + injection.effect_within_ms(self._effect_timeout_ms),
        )
        self._active.append(active)
        self._rows.report("inject", injection, {"duration_ms": injection.duration_ms, **injection.details})
        self._guarded(active, self._begin)

    def _begin(self, active: ActiveFault) -> None:
        try:
            active.injection.fault.inject(self._system, active.injection)
        except HarrowError as error:
            self.problems.append(f"{active.injection.fault} could not be injected: {error}")
            self._heal(active)
            return
        self._probe_effect(active)

    # -------------------------------------------------------------------------- effect and healing

    def _probe_effect(self, active: ActiveFault) -> None:
        injection = active.injection
        evidence = self._probed(injection)
        if evidence.proved:
            self._took_effect(active, evidence)
        elif evidence.failed:
            self.problems.append(f"{injection.fault} had no effect: {evidence.failed}")
            self._heal(active)
        elif not active.step.required and self._missed(active):
            self._heal(active)
        elif why := self._gave_up(active, evidence.facts):
            where = f" on brokers {list(injection.nodes)}" if injection.nodes else ""
            self.problems.append(f"{injection.fault}{where} had no effect ({why})")
            self._heal(active)

    def _gave_up(self, active: ActiveFault, facts: Mapping[str, Any]) -> str:
        """Return why the fault has no effect any more; empty while it may still have one."""
        if not active.waits:
            return f"seen: {dict(facts)}" if self._now_ms > active.deadline_ms else ""
        why = self._traffic_wait.gave_up(active, facts, self._now_ms)
        if self._closing_ms is not None and self._now_ms > self._closing_ms + GRACE_MS:
            why = "before the block ended; let the block last: while chaos.running:"
        return f"{active.injection.fault.unreached(active.injection, facts)} {why}" if why else ""

    def _something_else_acts(self) -> bool:
        """Whether a fault that waits may still be reached through what another fault, or a later step, does."""
        if any(not active.waits for active in self._active):
            return True
        if self._closing_ms is not None or not self._active:
            return False
        due_ms = [self._due_ms(self._steps[number]) for number in self._waiting]
        return any(due is not None and due > self._now_ms for due in due_ms)

    def _took_effect(self, active: ActiveFault, evidence: Evidence) -> None:
        assert evidence.proved, f"{active.injection.fault} has an effect without evidence"
        self.effects += 1
        self._events.took_effect(active.injection.id, self._view)
        active.enter(Phase.HOLDS)
        active.heal_at_ms = self._now_ms + active.injection.duration_ms
        self._rows.report("effect", active.injection, evidence.facts)

    def _missed(self, active: ActiveFault) -> bool:
        """Whether a step that is not required may end without an effect."""
        if active.step.until and (self._is_late() or self._events.ends(active.step)):
            return True
        if not active.injection.fault.may_miss:
            return False
        begun_ms = active.deadline_ms - active.injection.effect_within_ms(self._effect_timeout_ms)
        return self._now_ms >= begun_ms + active.injection.duration_ms

    def _probe_last(self, active: ActiveFault) -> None:
        evidence = self._probed(active.injection)
        if evidence.proved:
            self._took_effect(active, evidence)
        elif active.step.required:
            injection = active.injection
            why = f": {evidence.failed}" if evidence.failed else ""
            if active.waits and not why:
                why = f": {injection.fault.unreached(injection, evidence.facts)}"
            self.problems.append(f"{injection.fault} had no effect before the run ended{why}")

    def _probed(self, injection: Injection) -> Evidence:
        """Probe the effect; an error of the probe, such as a process that does not respond, proves nothing."""
        try:
            return injection.fault.probe(self._system, injection)
        except HarrowError as error:
            return Evidence(proved=False, facts={"error": str(error)})

    def _heal(self, active: ActiveFault) -> None:
        active.enter(Phase.HEALS)
        active.deadline_ms = self._now_ms + HEAL_TIMEOUT_MS
        self._rows.report("heal", active.injection, {})
        self._continue_healing(active)

    def _continue_healing(self, active: ActiveFault) -> None:
        assert active.phase is Phase.HEALS, f"{active.injection.fault} is healed while it {active.phase.name}"
        injection = active.injection
        evidence = Evidence(proved=False)
        try:
            injection.fault.heal(self._system, injection)
            evidence = injection.fault.probe_healed(self._system, injection)
            active.trouble = "" if evidence.proved else str(dict(evidence.facts))
        except HarrowError as error:
            active.trouble = str(error)
        if self._hidden_from(active):
            active.deadline_ms = self._now_ms + HEAL_TIMEOUT_MS
        if evidence.proved:
            self._rows.report("healed", injection, evidence.facts)
        elif self._now_ms <= active.deadline_ms:
            return
        else:
            self.problems.append(f"{injection.fault} was not healed: {active.trouble}")
        active.enter(Phase.OVER)
        self._active.remove(active)
        self._healed_ms = self._now_ms
        self._events.healed(injection.id)

    def _hidden_from(self, active: ActiveFault) -> bool:
        """Whether another fault hides the cluster: a broker that starts now cannot begin to run."""
        return any(other.injection.fault.hides_cluster for other in self._active if other is not active)

    def _skip(self, number: int, reason: str) -> None:
        step = self._steps[number]
        assert step.fired_ms is None or step.nodes is not None, f"step {step.id} fired and has no brokers"
        self._waiting.remove(number)
        self._rows.skipped(step, reason)
        self._events.is_over(step.id)
        if step.required:
            self.problems.append(f"{step.fault} never fired: {reason}")
