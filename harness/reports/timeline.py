"""The brokers' traces as lanes over time: a lane for each broker, for the controller and for each partition.

Owns: the conversion of trace events to time spans. Memory is bounded by the number of lanes, by a cap on the changes of
leader and ISR, and by one high watermark for each time bucket. Times are seconds since the start of the run.

A cluster that tests share has events of earlier tests: of those, only the state at the start is shown.

A process that is killed writes no trace event. When it ended is taken from the effect of a fault that ends processes
(`faults.jsonl`); without such a fault it is the last event before the next process of the broker starts. A controlled
shutdown and a failpoint's crash have trace events. The broker is dead until its next `broker.ready`. A partition's
leader leads until the next leader starts or its broker dies, whichever is first; in between there is no leader.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from harrow.cluster.events import TraceEvent
from harrow.cluster.events.brokers import (
    BrokerPlanted,
    BrokerReady,
    BrokerRegistered,
    BrokerSessionExpired,
    BrokerStarting,
    BrokerStopping,
)
from harrow.cluster.events.controllers import ControllerElected, ControllerResigned
from harrow.cluster.events.logs import LogFailed, LogRecovered
from harrow.cluster.events.partitions import (
    FollowerLogEndMoved,
    HighWatermarkMoved,
    IsrChanged,
    LogEndMoved,
    PartitionEvent,
    PartitionLeader,
    PartitionTruncated,
)
from harrow.cluster.events.processes import FailpointFired, TaskFailed
from harrow.cluster.events.requests import ResponseFailed, ResponseHeld, ResponseLost
from harrow.faults.spec import Hold

from ..histories.recorded_faults import RecordedFault
from ..histories.trace_events import read_whole_trace
from .page_model import BrokerLane, ControllerSpan, LeaderSpan, Mark, PartitionMark, PartitionModel, Span
from .recorded_run import RecordedRun

INTERNAL_PREFIX = "__"
LANES_MOST = 40
CHANGES_MOST = 400
MARKS_MOST = 150
MARKED: Mapping[type[TraceEvent], str] = {
    BrokerSessionExpired: "session expired",
    BrokerRegistered: "registered",
    FailpointFired: "failpoint fired",
    LogRecovered: "log recovered",
    LogFailed: "log failed",
    TaskFailed: "task failed",
    PartitionTruncated: "log truncated",
    ResponseLost: "response lost",
    ResponseHeld: "response held",
    ResponseFailed: "response failed after the effect",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that holds from a time on."""

    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange(Change):
    """A leader of a partition."""

    leader: int
    epoch: int | None
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange(Change):
    """An ISR of a partition."""

    isr: list[int]
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerChange(Change):
    """A controller."""

    broker: int
    epoch: int | None


T = TypeVar("T")
AnyChange = TypeVar("AnyChange", bound=Change)


@dataclass(slots=True, kw_only=True)
class PartitionLane:
    """One partition: its leaders, ISRs and high watermarks over time."""

    topic: str
    partition: int
    leaders: list[LeaderChange] = field(default_factory=list[LeaderChange])
    isr: list[IsrChange] = field(default_factory=list[IsrChange])
    high_watermarks: dict[int, int] = field(default_factory=dict[int, int])
    marks: list[PartitionMark] = field(default_factory=list[PartitionMark])
    dropped: int = 0

    @property
    def name(self) -> str:
        """Topic and partition: `orders-2`."""
        return f"{self.topic}-{self.partition}"

    def put(self, rows: list[T], row: T) -> None:
        """Append a change unless the cap is reached."""
        if len(rows) < CHANGES_MOST:
            rows.append(row)
        else:
            self.dropped += 1


class Timeline:
    """The lanes of one run. `read` processes the traces; the other methods return the lanes."""

    def __init__(self, begin_ns: int, end_ns: int, bucket_ns: int) -> None:
        self._begin_ns = begin_ns
        self._bucket_ns = bucket_ns
        self.end_s = self.seconds(end_ns)
        self.partitions: dict[tuple[str, int], PartitionLane] = {}
        self.internal: set[tuple[str, int]] = set()
        self.internal_elections = 0
        self._ready: dict[int, list[float]] = {}
        self._first: dict[int, float] = {}
        self._ending: dict[int, list[float]] = {}
        self._last: dict[int, float] = {}
        self._silent: dict[int, list[float]] = {}
        """By broker: the last event of each process after which another one started."""
        self._starting: set[int] = set()
        self._marks: dict[int, list[Mark]] = {}
        self._elected: list[ControllerChange] = []
        self._resigned: list[tuple[float, int]] = []
        """Time and broker."""
        self._faults: list[RecordedFault] = []
        self._ending_faults: list[RecordedFault] = []
        """Those that ended the processes of all their brokers when they took effect."""

    def seconds(self, t_ns: int) -> float:
        """Return seconds since the start, rounded to 0.1 ms."""
        return round((t_ns - self._begin_ns) / 1e9, 4)

    def read(self, run: RecordedRun) -> None:
        """Process all traces and faults of the run."""
        self._faults = [fault for fault in run.faults if fault.skipped is None]
        self._ending_faults = [fault for fault in self._faults if _ends_processes(fault)]
        for broker, path in run.traces.items():
            self._marks.setdefault(broker, [])
            for traced in read_whole_trace(path, times_of=(LogEndMoved, FollowerLogEndMoved)):
                self._feed(broker, self.seconds(traced.t_ns), traced.event)
        for lane in self.partitions.values():
            lane.leaders = _since_start(lane.leaders)
            lane.isr = _since_start(lane.isr)
            lane.marks = [mark for mark in lane.marks if mark["t"] >= 0]
        self._elected = _since_start(self._elected)
        for broker, marks in self._marks.items():
            self._marks[broker] = [mark for mark in marks if mark["t"] >= 0]

    def _feed(self, broker: int, at: float, event: TraceEvent) -> None:
        self._first.setdefault(broker, at)
        before, self._last[broker] = self._last.get(broker), at
        if type(event) in MARKED and len(self._marks[broker]) < MARKS_MOST:
            self._marks[broker].append({"t": at, "kind": event.event_name, "text": _mark_text(event)})
        match event:
            case PartitionEvent():
                self._feed_partition(broker, at, event)
            case BrokerPlanted() | BrokerStarting():
                self._starts(broker, before)
            case BrokerReady():
                self._ready.setdefault(broker, []).append(at)
                self._starting.discard(broker)
            case BrokerStopping() | FailpointFired(action="crash"):
                self._ending.setdefault(broker, []).append(at)
            case ControllerElected():
                self._elected.append(ControllerChange(t=at, broker=broker, epoch=event.epoch))
            case ControllerResigned():
                self._resigned.append((at, broker))
            case _:
                pass

    def _starts(self, broker: int, before: float | None) -> None:
        """A process starts, after an event of the process before it."""
        if broker not in self._starting:
            self._starting.add(broker)
            if before is not None:
                self._silent.setdefault(broker, []).append(before)

    def _feed_partition(self, broker: int, at: float, event: PartitionEvent) -> None:
        key = event.topic, event.partition
        if event.topic.startswith(INTERNAL_PREFIX):
            self.internal.add(key)
            self.internal_elections += isinstance(event, PartitionLeader)
            return
        lane = self.partitions.get(key)
        if lane is None:
            lane = self.partitions[key] = PartitionLane(topic=event.topic, partition=event.partition)
        match event:
            case HighWatermarkMoved():
                bucket = max(0, int(at * 1e9) // self._bucket_ns)
                lane.high_watermarks[bucket] = max(lane.high_watermarks.get(bucket, 0), event.hw)
            case PartitionLeader():
                leader, epoch = event.leader, event.leader_epoch
                lane.put(lane.leaders, LeaderChange(t=at, leader=leader, epoch=epoch, cause=event.cause))
                lane.put(lane.isr, _isr_change(at, event))
            case IsrChanged():
                lane.put(lane.isr, _isr_change(at, event))
            case PartitionTruncated():
                mark: PartitionMark = {"t": at, "broker": broker, "text": _mark_text(event)}
                lane.put(lane.marks, mark)
            case _:
                pass

    # ---- lanes -----------------------------------------------------------------------------------

    def down(self, broker: int) -> list[tuple[float, float]]:
        """Return the time spans in which a broker was dead."""
        spans: list[tuple[float, float]] = []
        ready = self._ready.get(broker, [])

        def back_after(at: float) -> float:
            return next((t for t in ready if t > at), self.end_s)

        begins = [
            self.seconds(fault.effect_ns if fault.effect_ns is not None else fault.begin_ns)
            for fault in self._ending_faults
            if broker in fault.nodes
        ]
        begins += [at for at in self._ending.get(broker, []) if not _near(at, begins)]
        for at in self._silent.get(broker, []):
            life = max((t for t in ready if t <= at), default=self.end_s)
            if not any(life < begun < back_after(at) for begun in begins):
                begins.append(at)
        for at in sorted(begins):
            if spans and at < spans[-1][1]:
                continue
            spans.append((at, back_after(at)))
        return spans

    def broker_lane(self, broker: int) -> BrokerLane:
        """Return one broker's states over time (`starting`, `up`, `dead`, `paused`, `isolated`) and its marks."""
        begin = self._first.get(broker, 0.0)
        ready = self._ready.get(broker, [])
        up_at = ready[0] if ready else self.end_s
        spans: list[Span] = []
        if up_at > begin:
            spans.append({"s": begin, "e": up_at, "state": "starting"})
        at = up_at
        for dead, back in self.down(broker):
            if dead > at:
                spans.append({"s": at, "e": dead, "state": "up"})
            spans.append({"s": max(dead, begin), "e": back, "state": "dead"})
            at = back
        if at < self.end_s:
            spans.append({"s": at, "e": self.end_s, "state": "up"})
        for fault in self._faults:
            holds = fault.says.holds
            if (holds is Hold.PAUSED or holds is Hold.ISOLATED) and broker in fault.nodes:
                begin_ns = fault.begin_ns if fault.effect_ns is None else fault.effect_ns
                end = self.end_s if fault.end_ns is None else self.seconds(fault.end_ns)
                spans.append({"s": self.seconds(begin_ns), "e": end, "state": holds.value})
        spans = [{"s": max(span["s"], 0.0), "e": span["e"], "state": span["state"]} for span in spans if span["e"] > 0]
        return {"id": broker, "spans": spans, "marks": self._marks.get(broker, [])}

    def brokers(self) -> list[BrokerLane]:
        """Return the lanes of all brokers."""
        return [self.broker_lane(broker) for broker in sorted(self._marks)]

    def controller(self) -> list[ControllerSpan]:
        """Return the controllers over time with their epochs."""
        spans: list[ControllerSpan] = []
        elected = sorted(self._elected, key=_order)
        for number, row in enumerate(elected):
            ends = [self.end_s]
            ends += [elected[number + 1].t] if number + 1 < len(elected) else []
            ends += [at for at, broker in self._resigned if broker == row.broker and at > row.t]
            ends += [dead for dead, _ in self.down(row.broker) if dead > row.t]
            spans.append({"s": row.t, "e": min(ends), "broker": row.broker, "epoch": row.epoch})
        return spans

    def partition_lanes(self, marked: Collection[str] = ()) -> tuple[list[PartitionModel], int]:
        """Return the partitions `marked` and those with the most changes, and the number of omitted partitions."""
        lanes = sorted(
            self.partitions.values(), key=lambda p: (p.name not in marked, -len(p.leaders), p.topic, p.partition)
        )
        shown = sorted(lanes[:LANES_MOST], key=lambda p: (p.topic, p.partition))
        return [self._partition_row(lane) for lane in shown], len(lanes) - len(shown)

    def _partition_row(self, lane: PartitionLane) -> PartitionModel:
        high, points = 0, list[list[float]]()
        for bucket in sorted(lane.high_watermarks):
            high = max(high, lane.high_watermarks[bucket])
            points.append([round(bucket * self._bucket_ns / 1e9, 4), high])
        spans = self._leader_spans(lane)
        return {
            "name": lane.name,
            "leaders": spans,
            "isr": [{"t": row.t, "isr": row.isr, "cause": row.cause} for row in lane.isr],
            "hw": points,
            "elections": _elections(spans),
            "marks": lane.marks,
            "dropped": lane.dropped,
        }

    def _leader_spans(self, lane: PartitionLane) -> list[LeaderSpan]:
        spans: list[LeaderSpan] = []
        for number, row in enumerate(lane.leaders):
            end = lane.leaders[number + 1].t if number + 1 < len(lane.leaders) else self.end_s
            deaths = [dead for dead, _ in self.down(row.leader) if row.t < dead < end]
            until = min(deaths, default=end)
            spans.append({"s": row.t, "e": until, "leader": row.leader, "epoch": row.epoch, "cause": row.cause})
        return spans

    @property
    def elections(self) -> int:
        """Elections after the first leader: another leader, or the same broker after its restart.

        A new leader epoch alone is not an election: the controller removed a dead follower from the ISR.
        """
        return sum(_elections(self._leader_spans(lane)) for lane in self.partitions.values())

    @property
    def controller_elections(self) -> int:
        """Number of controller elections."""
        return len(self._elected)


def _since_start(changes: list[AnyChange]) -> list[AnyChange]:
    """Return the changes in the order of time; of those before the start (of earlier tests) only the last, at 0 s."""
    ordered = sorted(changes, key=_order)
    earlier = [row for row in ordered if row.t < 0]
    return [replace(row, t=0.0) for row in earlier[-1:]] + [row for row in ordered if row.t >= 0]


def _elections(spans: list[LeaderSpan]) -> int:
    return sum(before["leader"] != after["leader"] or before["e"] < after["s"] for before, after in pairwise(spans))


def _ends_processes(fault: RecordedFault) -> bool:
    """Whether it ended the processes of all its brokers when it took effect."""
    kind = fault.says
    return kind.ends_process and not kind.one_at_a_time


def _order(row: Change) -> float:
    return row.t


def _near(at: float, others: list[float]) -> bool:
    return any(abs(at - other) < 1.0 for other in others)


def _isr_change(at: float, event: PartitionLeader | IsrChanged) -> IsrChange:
    return IsrChange(t=at, isr=sorted(event.isr), cause=event.cause)


def _mark_text(event: TraceEvent) -> str:
    values = event.json_fields()
    place = [f"{values.pop('topic')}-{values.pop('partition')}"] if isinstance(event, PartitionEvent) else []
    fields = place + [f"{name} {value}" for name, value in values.items()]
    return f"{MARKED[type(event)]}: {', '.join(fields)}"[:300] if fields else MARKED[type(event)]
