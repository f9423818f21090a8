"""The data of the report page, as the JSON object in the page has it. Times are seconds since the start of the run.

`picture.build_model` returns `PageModel`; `page.js` and the summary in the terminal read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from ..checks.rows import OperationRow


class StoredAnomaly(TypedDict, total=False):
    """An anomaly of verdict.json, from which a damaged file may lack fields."""

    name: str
    topic: str
    partition: int | None
    offsets: Sequence[int]
    operations: Sequence[OperationRow]
    explanation: str
    records: int


class KindModel(TypedDict):
    """A kind of anomaly in words."""

    name: str
    count: int
    text: str
    allowed: bool
    causes: list[str]


class AnomalyModel(TypedDict):
    """An anomaly, with the cells of its operations and the time of its mark."""

    name: str | None
    place: str
    records: int
    explanation: str
    offsets: list[str]
    offsets_hidden: int
    t: float | None
    operations: list[dict[str, str]]
    operations_hidden: int


class ProgressModel(TypedDict):
    """A row of the table of faults and clients."""

    fault: str
    label: str
    kind: str
    client: str
    partition: str
    without_progress_s: float
    recovered_s: float | None
    recovered: bool
    cluster_could_not_serve_s: float
    stalled_s: float
    why: str


class VerdictModel(TypedDict):
    """What the page shows of a verdict."""

    status: str
    guarantees: list[str]
    guarantee_reason: str | None
    operation_counts: dict[str, int]
    kinds: list[KindModel]
    reasons: list[str]
    notes: list[str]
    elapsed_ms: float
    anomalies: list[AnomalyModel]
    anomalies_hidden: int
    anomalies_each: int
    reasons_hidden: int
    notes_hidden: int
    progress: list[ProgressModel]


class TrafficModel(TypedDict):
    """Throughput and latencies, a value for each time bucket of `dt` seconds."""

    source: str
    delivered_source: str
    dt: float
    acked: list[float]
    delivered: list[float]
    failed: list[float]
    p50: list[float | None]
    p99: list[float | None]
    totals: dict[str, int]
    p50_all: float | None
    p99_all: float | None


class FaultModel(TypedDict):
    """A fault: from `s` to `e`, with an effect or not."""

    id: str
    kind: str
    label: str
    nodes: list[int]
    beside: str | None
    s: float
    effect: float | None
    e: float
    healed: bool
    skipped: str | None
    evidence: str


class Span(TypedDict):
    """A state of a broker."""

    s: float
    e: float
    state: str


class SpanBeside(Span):
    """A state of a program or a dependency, in words."""

    text: str


class MarkBeside(TypedDict):
    """Something that happened to a program or a dependency."""

    t: float
    text: str


class Mark(MarkBeside):
    """An event of a broker."""

    kind: str


class LaneBeside(TypedDict):
    """A program or a dependency over time."""

    name: str
    kind: str
    spans: list[SpanBeside]
    marks: list[MarkBeside]


class BrokerLane(TypedDict):
    """A broker over time."""

    id: int
    spans: list[Span]
    marks: list[Mark]


class ControllerSpan(TypedDict):
    """A controller and its epoch."""

    s: float
    e: float
    broker: int
    epoch: int | None


class LeaderSpan(TypedDict):
    """A leader of a partition, its leader epoch and why it was elected."""

    s: float
    e: float
    leader: int
    epoch: int | None
    cause: str | None


class IsrChange(TypedDict):
    """A change of an ISR."""

    t: float
    isr: list[int]
    cause: str | None


class PartitionMark(TypedDict):
    """An event of a broker on a partition."""

    t: float
    broker: int
    text: str


class PartitionModel(TypedDict):
    """A partition over time."""

    name: str
    leaders: list[LeaderSpan]
    isr: list[IsrChange]
    hw: list[list[float]]
    elections: int
    marks: list[PartitionMark]
    dropped: int


class CountsModel(TypedDict):
    """Records of the whole run."""

    acknowledged: int
    delivered: int
    unacknowledged: int


_Drawn = TypedDict("_Drawn", {"from": float})


class PageModel(_Drawn):
    """All data of the page; `from` is where the time axis begins."""

    title: str
    folder: str
    planted: list[str]
    seed: str | None
    security: str | None
    command: str | None
    duration: float
    empty: bool
    verdict: VerdictModel | None
    words: list[tuple[str, str]]
    traffic: TrafficModel
    counts: CountsModel
    faults: list[FaultModel]
    faults_hidden: int
    brokers: list[BrokerLane]
    controller: list[ControllerSpan]
    beside: list[LaneBeside]
    partitions: list[PartitionModel]
    partitions_hidden: int
    internal_partitions: int
    elections: int
    controller_elections: int
