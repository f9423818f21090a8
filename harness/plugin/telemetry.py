"""A trace of OpenTelemetry for each test that uses Harrow: its chaos blocks and faults as spans, the verdict as status.

    test_orders.py::test_no_order_is_lost         harrow.verdict = invalid, status ERROR
    └── chaos                                     events: leader elected, ISR changed, controller elected
        └── kill(leader('orders'))                harrow.fault.kind, harrow.fault.nodes; events: effect, heal

Spans are made when the test function has ended, from `faults.jsonl` and the traces of the brokers, with the times at
which things happened. So a test costs nothing while it runs. Without a tracer provider that the user configured,
nothing is read and OpenTelemetry is not imported (`is_configured`). Where a span is active, the trace belongs to it.

What may fail: nothing reaches the test. A row that cannot be read is left out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.events import TraceEvent
from harrow.cluster.events.brokers import BrokerSessionExpired
from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.partitions import IsrChanged, PartitionEvent, PartitionLeader

from .. import run_folder
from ..histories.recorded_faults import json_lines
from ..histories.trace_events import events_of_brokers
from ..verdict.endings import in_short
from .requested_fixtures import runs_of

if TYPE_CHECKING:
    import pytest
    from opentelemetry.trace import Span, Tracer

    from ..run.harrow_run import HarrowRun

API = "opentelemetry.trace"
EVENTS: Mapping[type[TraceEvent], str] = {
    PartitionLeader: "leader elected",
    IsrChanged: "ISR changed",
    ControllerElected: "controller elected",
    BrokerSessionExpired: "broker session expired",
}
"""Events of the brokers' traces that a span shows, and its words for them."""
EVENT_FIELDS = ("topic", "partition", "leader", "leader_epoch", "isr", "epoch", "node_id", "cause")
INTERNAL = "__"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """How a test ended; times are those of `time.time_ns`."""

    __test__ = False

    nodeid: str
    outcome: str
    """`passed`, `failed` or `skipped`."""
    reason: str
    """Why it failed; empty otherwise."""
    began_ns: int
    ended_ns: int


def is_configured() -> bool:
    """Whether this process has a tracer provider of the user's; OpenTelemetry is not imported for the question."""
    api: Any = sys.modules.get(API)
    if api is None:
        return False
    provider = api.get_tracer_provider()
    return not isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider)


def export(result: TestResult, runs: Sequence[HarrowRun]) -> None:
    """Make the spans of a test and of its runs; the user's provider exports them."""
    from opentelemetry.trace import Status, StatusCode, get_tracer, set_span_in_context

    tracer = get_tracer("harrow")
    root = tracer.start_span(
        result.nodeid,
        start_time=result.began_ns,
        attributes={"test.case.name": result.nodeid, "test.case.result.status": _semantic(result.outcome)},
    )
    for run in runs:
        for name, value in _facts_of(run).items():
            root.set_attribute(name, value)
        _add_blocks(tracer, root, set_span_in_context(root), run, result)
    if result.outcome == "failed":
        root.set_status(Status(StatusCode.ERROR, result.reason))
    elif any(run.made.verdicts for run in runs):
        root.set_status(Status(StatusCode.OK))
    root.end(result.ended_ns)


def _semantic(outcome: str) -> str:
    return {"passed": "pass", "failed": "fail"}.get(outcome, outcome)


def _facts_of(run: HarrowRun) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "messaging.system": "kafka",
        "harrow.seed": run.seed,
        "harrow.brokers": run.brokers,
        "harrow.backend": run.backend,
        "harrow.folder": str(run.folder),
    }
    if run.made.verdicts:
        verdict = run.made.verdicts[-1]
        facts |= {
            "harrow.verdict": verdict.status.value,
            "harrow.verdict.guarantees": list(verdict.guarantees),
            "harrow.verdict.reasons": list(verdict.reasons),
            **{f"harrow.anomaly.{name}": count for name, count in verdict.anomaly_counts.items()},
        }
    return facts


def _add_blocks(tracer: Tracer, root: Span, inside: Any, run: HarrowRun, result: TestResult) -> None:
    """Add a span for each chaos block of the test, with its faults, and the cluster's events while the test ran."""
    from opentelemetry.trace import set_span_in_context

    clock = time.time_ns() - time.monotonic_ns()
    faults = faults_by_id(json_lines(run.folder / run_folder.FAULTS))
    spans: list[tuple[int, int, Span]] = []
    for schedule in run.schedules:
        rows = [faults[step.id] for step in schedule.steps if step.id in faults]
        times = [row["t_ns"] + clock for several in rows for row in several]
        if not times:
            continue
        block = tracer.start_span("chaos", context=inside, start_time=min(times))
        block.set_attribute("harrow.schedule.seed", schedule.seed)
        block.set_attribute("harrow.schedule.cap", schedule.cap)
        for several in rows:
            _add_fault(tracer, set_span_in_context(block), several, clock)
        spans.append((min(times), max(times), block))
    for at_ns, name, attributes in cluster_events(run.folder):
        if not result.began_ns <= at_ns + clock <= result.ended_ns:
            continue  # of another test on the same cluster
        where = next((span for low, high, span in spans if low <= at_ns + clock <= high), root)
        where.add_event(name, attributes, timestamp=at_ns + clock)
    for _, high, span in spans:
        span.end(high)


def _add_fault(tracer: Tracer, inside: Any, rows: Sequence[Row], clock: int) -> None:
    """Add the span of a fault, from its injection to the proof of its healing; a fault that never fired has none."""
    first, last = rows[0], rows[-1]
    span = tracer.start_span(
        str(first["label"]),
        context=inside,
        start_time=first["t_ns"] + clock,
        attributes={
            "harrow.fault.kind": str(first["fault"]),
            "harrow.fault.id": str(first["id"]),
            "harrow.fault.nodes": [int(node) for node in first["targets"]],
        },
    )
    for row in rows[1:]:
        evidence = json.dumps(row["evidence"], default=str)
        span.add_event(str(row["event"]), {"harrow.evidence": evidence}, timestamp=row["t_ns"] + clock)
    span.end(last["t_ns"] + clock)


def faults_by_id(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each fault of `faults.jsonl`, in order of time."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if {"t_ns", "id", "event", "label", "fault", "targets", "evidence"} <= row.keys():
            found.setdefault(str(row["id"]), []).append(row)
    return found


def cluster_events(run: Path) -> list[tuple[int, str, dict[str, Any]]]:
    """Return elections and changes of ISRs of a run: monotonic time in nanoseconds, words, attributes; in order."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    for traced in events_of_brokers(run, EVENTS):
        event = traced.event
        if isinstance(event, PartitionEvent) and event.topic.startswith(INTERNAL):
            continue
        row = traced.row()
        fields = {f"harrow.{name}": row[name] for name in EVENT_FIELDS if row.get(name) is not None}
        found.append((traced.t_ns, EVENTS[type(event)], {"harrow.broker": traced.process, **fields}))
    return sorted(found, key=lambda event: event[0])


def export_test(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Export the trace of a test that used Harrow and whose function has ended, where a provider is configured."""
    runs = runs_of(item)
    if not runs or not is_configured():
        return
    error = call.excinfo.value if call.excinfo is not None else None
    result = TestResult(
        nodeid=item.nodeid,
        outcome=report.outcome,
        reason="" if error is None else in_short(error),
        began_ns=round(call.start * 1e9),
        ended_ns=round(call.stop * 1e9),
    )
    export(result, runs)
