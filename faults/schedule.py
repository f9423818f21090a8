"""A schedule: faults with their times as plain values, replayable from JSON (K9).

A step fires `at_ms` after its trigger: `traffic` (the first traffic on the topics under test) or `healed` (every
earlier step is healed; the time of the first step then counts from the traffic). Or its trigger is `events`: it fires
`at_ms` after everything that `after` names has happened (`events.py`).

Its fault lasts `duration_ms` after the proved effect; None: the fault draws the duration. With `until` it heals as soon
as everything that this names has happened, and after its duration at the latest. When the step fires, the nemesis
stores the resolved values (`nodes`, `duration_ms`, `details`, `fired_ms`) in it. A replay uses exactly these, and fires
the step not before `fired_ms`, unless the step waits for events.

`run` describes the cluster and the workload, as far as they are known: brokers, settings, topic, workload, seeds (see
`harness/run_settings.py`). With it the file alone repeats a run, on simulated machines and on real processes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from harrow.cluster.argument_types import json_list, json_object, place_of

from .errors import ConfigError
from .events import Event
from .fault_kinds import fault_from_json
from .spec import Fault, Injection

SCHEMA_VERSION = 1
EVENTS = "events"
TRIGGERS = ("traffic", "healed", EVENTS)
UNTIL_MOST_MS = 60_000
"""How long a fault lasts at most that heals at an event, where its step has no duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """One step of a schedule: a fault and its time."""

    id: str
    fault: Fault
    at_ms: int = 0
    trigger: str = "healed"
    required: bool = True
    """Whether the run fails when it could not fire (no broker in that role, the cap, the end of the run)."""
    nodes: tuple[int, ...] | None = None
    duration_ms: int | None = None
    details: Mapping[str, Any] | None = None
    fired_ms: int | None = None
    """When it fired, after the first traffic. A replay fires it then, or later where its trigger is later."""
    after: tuple[Event, ...] = ()
    """It fires `at_ms` after all of these have happened; the trigger is then `events`."""
    until: tuple[Event, ...] = ()
    """It heals as soon as all of these have happened, and at the latest when its duration has passed."""
    overlaps: bool = False
    """Whether it may hit a broker that another step disturbs."""
    frames: int = 0
    """It fires with so many frames between clients and brokers after its time, where these are counted."""

    def __post_init__(self) -> None:
        if self.after and self.trigger == "healed":
            object.__setattr__(self, "trigger", EVENTS)
        if bool(self.after) != (self.trigger == EVENTS):
            raise ConfigError(
                f"step {self.id}: the trigger is {self.trigger!r} and after={self.after!r}; a step that waits for "
                "events has both, another step has neither"
            )

    def fired(self, injection: Injection, fired_ms: int) -> ScheduledFault:
        """Return the step with what was resolved when it fired."""
        assert injection.id == self.id, f"step {self.id} fires as {injection.id}"
        assert fired_ms >= 0, f"step {self.id} fires {-fired_ms} ms before the first traffic"
        assert self.nodes is None or self.nodes == injection.nodes, f"a replay of step {self.id} hits other brokers"
        return replace(
            self,
            nodes=injection.nodes,
            duration_ms=injection.duration_ms,
            details=dict(injection.details),
            fired_ms=fired_ms,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; None where nothing is resolved yet."""
        return {
            "id": self.id,
            "fault": self.fault.to_json(),
            "at_ms": self.at_ms,
            "trigger": self.trigger,
            "required": self.required,
            "nodes": None if self.nodes is None else list(self.nodes),
            "duration_ms": self.duration_ms,
            "details": None if self.details is None else dict(self.details),
            "fired_ms": self.fired_ms,
            **{name: [e.to_json() for e in events] for name, events in self._events() if events},
            **({"overlaps": True} if self.overlaps else {}),
            **({"frames": self.frames} if self.frames else {}),
        }

    def _events(self) -> tuple[tuple[str, tuple[Event, ...]], ...]:
        return (("after", self.after), ("until", self.until))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ScheduledFault:
        """Read what `to_json` wrote; ConfigError names the field that cannot be used."""
        values = json_object(raw, cls, leave=("id", "fault", "after", "until"))
        trigger = values.get("trigger", "healed")
        if trigger not in TRIGGERS:
            raise ConfigError(f"step trigger {trigger!r}: expected {', '.join(TRIGGERS)}")
        if "fault" not in values:
            raise ConfigError(f"step {values!r}: no fault")
        name = values.get("id", "")
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise ConfigError(f"id is {name!r}: expected a text, such as '1'")
        for key in ("at_ms", "duration_ms", "fired_ms", "frames"):
            if (values.get(key) or 0) < 0:
                what = "frames" if key == "frames" else "milliseconds"
                raise ConfigError(f"{key} is {values[key]}: expected 0 or more {what}")
        with place_of("fault"):
            fault = fault_from_json(values["fault"])
        events = {key: _events_from_json(key, values.get(key, [])) for key in ("after", "until")}
        nodes = values.get("nodes")
        given: dict[str, Any] = {**values, "nodes": None if nodes is None else tuple(nodes)}
        given |= {"id": str(name), "fault": fault, **events}
        return cls(**given)


def _events_from_json(key: str, raw: object) -> tuple[Event, ...]:
    found: list[Event] = []
    for at, row in enumerate(json_list(raw, key)):
        with place_of(f"{key}[{at}]"):
            found.append(Event.from_json(row))
    return tuple(found)


def step_after(
    name: int | str,
    fault: Fault,
    *events: Event,
    wait_ms: int = 0,
    until: tuple[Event, ...] = (),
    duration_ms: int = UNTIL_MOST_MS,
    overlaps: bool = False,
    **details: object,
) -> ScheduledFault:
    """Return a step that fires `wait_ms` after `events`, without them after the first traffic.

    It is left out where its events do not happen. `details` that are given are not drawn.
    """
    return ScheduledFault(
        id=str(name),
        fault=fault,
        at_ms=wait_ms,
        trigger=EVENTS if events else "traffic",
        after=events,
        until=until,
        duration_ms=duration_ms,
        overlaps=overlaps,
        required=False,
        details=details or None,
    )


def timed_step(name: int | str, at_ms: float, fault: Fault, lasts_ms: float, **details: object) -> ScheduledFault:
    """Return a step at a time after the first traffic, which is left out where it cannot fire then.

    `details` that are given are not drawn.
    """
    return ScheduledFault(
        id=str(name),
        fault=fault,
        at_ms=round(at_ms),
        trigger="traffic",
        required=False,
        duration_ms=round(lasts_ms),
        details=details or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps in order. `seed` draws what the steps leave open."""

    IN_WORDS: ClassVar[str] = "a schedule, which Schedule.from_json(TEXT) makes of the text of a file"

    steps: tuple[ScheduledFault, ...] = ()
    seed: int = 0
    cap: int = 1
    """Most brokers disturbed at once."""
    duration_ms: int | None = None
    """Time after the first traffic from which only required steps fire."""
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For readers: how it was drawn, what it found."""
    run: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Cluster and workload of the run; empty where they are not known."""

    def without(self, ids: Collection[str]) -> Schedule:
        """Return the schedule without these steps; what waited for one of them waits for what that one waited for."""
        gone = {step.id: step for step in self.steps if step.id in ids}
        kept = [step for step in self.steps if step.id not in gone]
        assert len(kept) + len(gone) == len(self.steps), "two steps of the schedule have one id"
        return replace(self, steps=tuple(_not_waiting_for(gone, step) for step in kept))

    def to_json(self) -> str:
        """Return the file's text."""
        body = {
            "schema_version": SCHEMA_VERSION,
            "seed": self.seed,
            "cap": self.cap,
            "duration_ms": self.duration_ms,
            "notes": dict(self.notes),
            "run": dict(self.run),
            "steps": [step.to_json() for step in self.steps],
        }
        return json.dumps(body, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Read a schedule file; ConfigError says what is wrong with it."""
        try:
            read: Any = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"not a schedule: {error}") from None
        raw = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
        version = raw.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"schedule schema_version {version!r}: this Harrow reads {SCHEMA_VERSION}; record it again"
            )
        del raw["schema_version"]
        with place_of("schedule"):
            values = json_object(raw, cls, leave=("steps",))
            rows = json_list(values.get("steps", []), "steps")
            if values.get("cap", 1) < 1:
                raise ConfigError(f"cap is {values['cap']}: expected at least 1 broker")
        steps: list[ScheduledFault] = []
        for at, row in enumerate(rows):
            with place_of(f"steps[{at}]"):
                steps.append(ScheduledFault.from_json(row))
        values["steps"] = tuple(steps)
        return cls(**values)


def _not_waiting_for(gone: Mapping[str, ScheduledFault], step: ScheduledFault) -> ScheduledFault:
    """Return the step without its events of steps that are gone."""
    while missing := [event.step for event in step.after if event.step in gone]:
        other = gone[missing[0]]
        after = tuple(event for event in step.after if event.step != other.id)
        inherited = tuple(event for event in other.after if event not in after)
        events = (*inherited, *after)
        trigger = EVENTS if events else "traffic"
        step = replace(step, after=events, at_ms=step.at_ms + other.at_ms, trigger=trigger)
    until = tuple(event for event in step.until if event.step not in gone)
    assert not any(event.step in gone for event in step.after), f"step {step.id} waits for a step that is gone"
    return step if until == step.until else replace(step, until=until)


def check_events(schedule: Schedule) -> None:
    """Raise ConfigError for a step that waits for a step that the schedule does not have, or begins after itself."""
    known = {step.id for step in schedule.steps}
    for step in schedule.steps:
        for event in (*step.after, *step.until):
            waits_for_itself = event.step == step.id and event not in step.until
            if event.step and (event.step not in known or waits_for_itself):
                others = (other.id for other in schedule.steps if other.id != step.id)
                named = ", ".join(map(repr, others)) or "none"
                raise ConfigError(f"step {step.id} of the schedule waits for {event!r}; the other steps are: {named}")


def check_nodes(step: ScheduledFault, nodes: tuple[int, ...]) -> None:
    """Raise ConfigError for a recorded step whose brokers this cluster does not have."""
    missing = sorted(set(step.nodes or ()) - set(nodes))
    if missing:
        raise ConfigError(
            f"step {step.id} of the schedule, {step.fault}, targets brokers {missing}, and this cluster has "
            f"{list(nodes)}; replay it on a cluster of at least {max(missing)} brokers"
        )
