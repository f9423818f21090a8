"""Events in the trace of a simulated run, beside those of the brokers: the run, its faults, and its clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.events import TraceEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegan(TraceEvent):
    """The run begins; by the world."""

    EVENT: ClassVar[str] = "begin"
    seed: int
    config: Mapping[str, Any]
    """Settings of the brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(TraceEvent):
    """The run has been judged; by the world."""

    EVENT: ClassVar[str] = "end"
    status: str
    anomalies: tuple[tuple[str, str], ...]
    """Name and text of each."""
    turns: int
    """Of the loop."""
    acknowledged: int
    """Records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyFound(TraceEvent):
    """The workload noticed an anomaly while it ran; by the world."""

    EVENT: ClassVar[str] = "anomaly"
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent(TraceEvent):
    """A row of the nemesis, with its fields; by the world."""

    id: str
    fault: str
    """The kind."""
    label: str
    targets: tuple[int, ...]
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected(FaultEvent):
    """A fault begins."""

    EVENT: ClassVar[str] = "fault.inject"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTookEffect(FaultEvent):
    """A probe showed the effect of a fault."""

    EVENT: ClassVar[str] = "fault.effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHealing(FaultEvent):
    """The healing of a fault begins."""

    EVENT: ClassVar[str] = "fault.heal"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHealed(FaultEvent):
    """A probe showed that the healing had its effect."""

    EVENT: ClassVar[str] = "fault.healed"


FAULT_EVENTS: Mapping[str, type[FaultEvent]] = {
    kind.EVENT.removeprefix("fault."): kind for kind in (FaultInjected, FaultTookEffect, FaultHealing, FaultHealed)
}
"""By `event` of a row of the nemesis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed(TraceEvent):
    """The job's transaction ended with an error, and the job begins again."""

    EVENT: ClassVar[str] = "client.job.error"
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingAltered(TraceEvent):
    """The operator changed a setting of a topic."""

    EVENT: ClassVar[str] = "client.operator.alter"
    topic: str
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsDeleted(TraceEvent):
    """The operator deleted the records below an offset."""

    EVENT: ClassVar[str] = "client.operator.delete-records"
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadersElected(TraceEvent):
    """The operator asked for preferred elections."""

    EVENT: ClassVar[str] = "client.operator.elect"


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanLeadersElected(TraceEvent):
    """The operator asked for unclean elections."""

    EVENT: ClassVar[str] = "client.operator.elect-unclean"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassigned(TraceEvent):
    """The operator moved a partition to other brokers."""

    EVENT: ClassVar[str] = "client.operator.reassign"
    topic: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingAborted(TraceEvent):
    """The operator aborted a transaction that no coordinator knows."""

    EVENT: ClassVar[str] = "client.operator.abort-hanging"
    topic: str
    partition: int
    producer_id: int
    error: str
    """Kafka's name."""
