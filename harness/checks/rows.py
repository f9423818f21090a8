"""What checks find, as values: the result of a partition, its anomalies, and the operations that show them.

`to_json` and `from_json` are called at two borders only: where a result leaves a task of Spark (`kernels/`), and where
anomalies are written into the run folder (`promise_findings.py`, `imported.py`). This module imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypedDict

from .client_names import Explanation
from .facts import Fact, fact_of


class OperationRow(TypedDict, total=False):
    """An operation, a batch or an event that shows an anomaly, as verdict.json has it; what is not known is absent.

    In a task, and until `examples.py` puts their names there, clients, groups and members are numbers.
    """

    operation: str
    outcome: str
    topic: str
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    key: str | None
    value: str
    headers: list[str]
    record_id: str | None
    client: int | str
    op: int
    key_hash: str
    value_hash: str
    invoked_ns: int
    completed_ns: int
    time_ns: int
    t_ns: int

    # batches of taps and logs
    broker: int | str
    records: int
    response_lost: bool
    response_error: int
    base_offset: int
    last_offset: int
    crc: str
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    acks: int

    # groups and their commits
    group: int | str
    member: int | str | None
    generation: int | None
    reading_group: int | str
    state: str
    members: int

    # brokers, their responses and traces
    event: str
    host: str
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    correlation_id: int
    timeout_ms: int

    # what the application promised
    position: int
    sent: int
    deliveries: int
    stopped_group: str
    attempts: int | None
    due_ns: int | None
    due_after_read: bool
    early_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyRow:
    """An anomaly as a check found it; a verdict's `Anomaly` has the names of clients and what records contained."""

    name: str
    topic: str
    partition: int
    offsets: Sequence[int] = ()
    operations: Sequence[OperationRow] = ()
    explanation: Explanation
    records: int = 1
    """How many records it concerns."""

    def to_json(self) -> dict[str, Any]:
        """Return its fields; one record is not written."""
        fields = asdict(self)
        if self.records == 1:
            del fields["records"]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> AnomalyRow:
        """Return the anomaly that `to_json` wrote."""
        given: dict[str, Any] = {**fields}
        if not isinstance(given["explanation"], str):
            given["explanation"] = tuple(given["explanation"])
        return cls(**given)


class ProgressRow(TypedDict):
    """Whether a client, a group or a transactional id stood still at a fault, as verdict.json has it.

    Times in seconds; `recovered_s` after the fault was healed, `stalled_from_s` since the start of the test.
    """

    fault: str
    """Its id; empty for what belongs to no fault."""
    label: str
    client: str
    kind: str
    partition: str
    without_progress_s: float
    recovered_s: float | None
    recovered: bool
    cluster_could_not_serve_s: float
    waited_for_members_s: float
    stalled_s: float
    stalled_from_s: float | None


class Doubt(NamedTuple):
    """A reason of unknown where the guarantees forbid the anomaly that it is about; else a note."""

    about: str
    """The name of an anomaly."""
    reason: str


class Appended(NamedTuple):
    """How many records were appended for a client, and when the last response was sent."""

    client: int
    records: int
    last_ns: int


class LackingSends(NamedTuple):
    """Refused records of one client that it cannot have sent again in this partition."""

    client: int
    records: int
    since_ns: int
    errors: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Records that brokers refused and that are not in the log (`kernels/refusals.py`)."""

    batches: int
    clients: Sequence[int]
    errors: Sequence[int]
    lacking: Sequence[LackingSends]


class Unread(NamedTuple):
    """Records that no reader received, although readers were there, and when the last reader read."""

    records: int
    last_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTraffic:
    """When the traffic of a partition began and ended, and how many operations met each fault, and any fault."""

    began_ns: int
    ended_ns: int
    met: Sequence[int]
    met_any: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """What the kernels found in one topic-partition; without a topic, why no task has judged it."""

    topic: str = ""
    partition: int = -1
    operation_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    traffic: PartitionTraffic | None = None
    anomaly_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    anomalies: Sequence[AnomalyRow] = ()
    evidence: Sequence[Fact] = ()
    unknown: Sequence[str] = ()
    doubts: Sequence[Doubt] = ()
    refused: Refused | None = None
    appended: Sequence[Appended] = ()
    unread: Unread | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON, as it leaves a task."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "operation_counts": self.operation_counts,
            "traffic": None if self.traffic is None else asdict(self.traffic),
            "anomaly_counts": self.anomaly_counts,
            "anomalies": [anomaly.to_json() for anomaly in self.anomalies],
            "evidence": [fact.to_json() for fact in self.evidence],
            "unknown": self.unknown,
            "doubts": self.doubts,
            "refused": None if self.refused is None else asdict(self.refused),
            "appended": self.appended,
            "unread": self.unread,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PartitionResult:
        """Return the result that a task sent."""
        given: dict[str, Any] = {**found}
        given["anomalies"] = [AnomalyRow.from_json(row) for row in found["anomalies"]]
        given["evidence"] = [fact_of(row) for row in found["evidence"]]
        given["doubts"] = [Doubt(*row) for row in found["doubts"]]
        given["appended"] = [Appended(*row) for row in found["appended"]]
        if traffic := found["traffic"]:
            given["traffic"] = PartitionTraffic(**traffic)
        if unread := found["unread"]:
            given["unread"] = Unread(*unread)
        if refused := found["refused"]:
            lacking = [LackingSends(*row) for row in refused["lacking"]]
            given["refused"] = Refused(
                batches=refused["batches"], clients=refused["clients"], errors=refused["errors"], lacking=lacking
            )
        return cls(**given)
