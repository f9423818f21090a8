"""A schedule: faults with their times as plain values, replayable from JSON (K9).

A step fires `at_ms` after its trigger: `traffic` (the first traffic on the topics under test) or `healed` (every
earlier step is healed; the time of the first step then counts from the traffic). Its fault lasts `duration_ms` after
the proved effect; None: the fault draws the duration. When the step fires, the nemesis stores the resolved values
(`nodes`, `duration_ms`, `details`, `fired_ms`) in it. A replay uses exactly these, and fires the step not before
`fired_ms`.

`run` describes the cluster and the workload, as far as they are known: brokers, settings, topic, workload, seeds (see
`harness/run_settings.py`). With it the file alone repeats a run, on simulated machines and on real processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .errors import ConfigError
from .fault_kinds import fault_from_json
from .spec import Fault, Injection

SCHEMA_VERSION = 1
TRIGGERS = ("traffic", "healed")


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

    def fired(self, injection: Injection, fired_ms: int) -> ScheduledFault:
        """Return the step with what was resolved when it fired."""
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
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ScheduledFault:
        """Read what `to_json` wrote; ConfigError names the field that cannot be used."""
        trigger = raw.get("trigger", "healed")
        if trigger not in TRIGGERS:
            raise ConfigError(f"step trigger {trigger!r}: expected {' or '.join(TRIGGERS)}")
        if "fault" not in raw:
            raise ConfigError(f"step {dict(raw)!r}: no fault")
        nodes = raw.get("nodes")
        return cls(
            id=str(raw.get("id", "")),
            fault=fault_from_json(raw["fault"]),
            at_ms=int(raw.get("at_ms", 0)),
            trigger=trigger,
            required=bool(raw.get("required", True)),
            nodes=None if nodes is None else tuple(int(node) for node in nodes),
            duration_ms=raw.get("duration_ms"),
            details=raw.get("details"),
            fired_ms=raw.get("fired_ms"),
        )


def timed_step(
    name: int | str, at_ms: float, fault: Fault, lasts_ms: float, **details: object
) -> ScheduledFault:
    """Return a step at a time after the first traffic, which is left out where it cannot fire then.

    `details` that are given are not drawn.
    """
    return ScheduledFault(
        id=str(name), fault=fault, at_ms=round(at_ms), trigger="traffic", required=False,
        duration_ms=round(lasts_ms), details=details or None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps in order. `seed` draws what the steps leave open."""

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
        return cls(
            steps=tuple(ScheduledFault.from_json(step) for step in raw.get("steps", ())),
            seed=int(raw.get("seed", 0)),
            cap=int(raw.get("cap", 1)),
            duration_ms=raw.get("duration_ms"),
            notes=raw.get("notes", {}),
            run=raw.get("run", {}),
        )
