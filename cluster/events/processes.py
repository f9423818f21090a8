"""Events of a process: its clock, its failpoints, its failures, and what a simulation does to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .event import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet(TraceEvent):
    """A fault made the wall clock wrong."""

    EVENT: ClassVar[str] = "clock.set"
    kind: str
    """`jump`, `skew` or `strobe`."""
    by_ms: int
    rate: float
    period_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockCleared(TraceEvent):
    """The wall clock is right."""

    EVENT: ClassVar[str] = "clock.cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailpointFired(TraceEvent):
    """A failpoint acts, before it does."""

    EVENT: ClassVar[str] = "failpoint.fired"
    name: str
    action: str
    """`crash`, `stop`, `delay` or `error`."""
    hit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailed(TraceEvent):
    """An exception that no caller receives: a bug of Harrow's, which makes a test fail."""

    EVENT: ClassVar[str] = "task.failed"
    name: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStalled(TraceEvent):
    """The loop did not advance for so long."""

    EVENT: ClassVar[str] = "process.stalled"
    late_ms: int
    cpu_ms: int
    """CPU time of the process meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory(TraceEvent):
    """An allocation failed, and the process ends at once."""

    EVENT: ClassVar[str] = "process.out-of-memory"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFailed(TraceEvent):
    """A simulated process could not start, or failed."""

    EVENT: ClassVar[str] = "process.failed"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine(TraceEvent):
    """A line for people, in the trace of a simulation; a real process has a file of them."""

    EVENT: ClassVar[str] = "log"
    level: str
    message: str
    values: Mapping[str, Any]
    """Further fields of the row, by key."""

    def fields(self) -> dict[str, object]:
        """Return level and message, then `values`."""
        return {"level": self.level, "message": self.message, **self.values}

    @classmethod
    def from_fields(cls, row: dict[str, Any]) -> TraceEvent:
        """Return the line with what `row` has beside level and message as `values`."""
        return cls(level=row.pop("level", ""), message=row.pop("message", ""), values=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMachine(TraceEvent):
    host_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKilled(_OfMachine):
    """The process on a simulated machine was killed; by the world."""

    EVENT: ClassVar[str] = "host.killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePowerCut(_OfMachine):
    """A simulated machine lost its power; by the world."""

    EVENT: ClassVar[str] = "host.power-cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePaused(_OfMachine):
    """The process on a simulated machine is stopped; by the world."""

    EVENT: ClassVar[str] = "host.paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResumed(_OfMachine):
    """The process on a simulated machine goes on; by the world."""

    EVENT: ClassVar[str] = "host.resumed"
