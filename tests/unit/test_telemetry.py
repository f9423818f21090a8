"""Traces of OpenTelemetry: a span for each test, chaos block and fault, and nothing without a provider (J8)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harrow import kill, leader
from harrow.faults import Schedule, ScheduledFault
from harrow.harness.checks import Status
from harrow.harness.plugin import telemetry
from harrow.harness.plugin.telemetry import TestResult
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

SECOND = 10**9


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that were exported, by a provider that only this test has."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn')


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """A run with a fault that took effect, one that never fired, and elections; times in seconds before now."""
    now = time.monotonic_ns()

    def row(event: str, number: str, before_s: float) -> dict[str, Any]:
        return {
            "t_ns": now - round(before_s * SECOND),
            "event": event,
            "id": number,
            "fault": "kill",
            "label": "kill(leader('orders'))",
            "targets": [2],
            "evidence": {"incarnation": 1},
        }

    rows = [row("inject", "1", 5), row("effect", "1", 4.5), row("heal", "1", 3), row("healed", "1", 2)]
    lines(tmp_path / "faults.jsonl", rows)
    led = {"leader_epoch": 0, "isr": [1]}
    traced = [
        {"event": "partition.leader", "topic": "orders", "partition": 0, "leader": 1, **led, "t_ns": now - 4 * SECOND},
        {"event": "partition.leader", "topic": "__offsets", "partition": 0, **led, "t_ns": now - 4 * SECOND},
        {"event": "partition.hw", "topic": "orders", "partition": 0, "hw": 1, "leo": 1, "t_ns": now - 4 * SECOND},
        {"event": "partition.isr", "topic": "orders", "partition": 0, **led, "t_ns": now - 1 * SECOND},
        {"event": "controller.elected", "epoch": 1, "t_ns": now - 60 * SECOND},
    ]
    lines(tmp_path / "cluster" / "broker-1" / "trace.jsonl", traced)
    verdict = SimpleNamespace(
        status=Status.INVALID, guarantees=("no-loss",), reasons=(), anomaly_counts={"lost-write": 3}
    )
    steps = tuple(ScheduledFault(id=name, fault=kill(leader("orders"))) for name in ("1", "2"))
    return SimpleNamespace(
        folder=tmp_path,
        seed=7,
        brokers=3,
        backend="local",
        made=SimpleNamespace(verdicts=[verdict]),
        schedules=[Schedule(steps=steps, seed=5)],
    )


def exported(exporter: InMemorySpanExporter, run: Any, outcome: str) -> dict[str, ReadableSpan]:
    now = time.time_ns()
    result = TestResult(
        nodeid="t.py::test",
        outcome=outcome,
        reason="VerdictError: INVALID" * (outcome == "failed"),
        began_ns=now - 10 * SECOND,
        ended_ns=now,
    )
    telemetry.export(result, [run])
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_test_has_a_span_with_its_block_and_its_faults_below(exporter: InMemorySpanExporter, run: Any) -> None:
    spans = exported(exporter, run, "failed")
    assert list(spans) == ["kill(leader('orders'))", "chaos", "t.py::test"]
    fault, block, root = spans.values()
    assert (fault.parent, block.parent) == (block.context, root.context)
    assert root.parent is None
    assert fault.attributes == {"harrow.fault.kind": "kill", "harrow.fault.id": "1", "harrow.fault.nodes": (2,)}
    assert fault.end_time is not None
    assert fault.start_time is not None
    assert (fault.end_time - fault.start_time) == 3 * SECOND
    assert [event.name for event in fault.events] == ["effect", "heal", "healed"]
    assert (block.start_time, block.end_time) == (fault.start_time, fault.end_time)


def test_the_verdict_is_attributes_and_the_status(exporter: InMemorySpanExporter, run: Any) -> None:
    root = exported(exporter, run, "failed")["t.py::test"]
    assert root.attributes is not None
    assert root.attributes["harrow.verdict"] == "invalid"
    assert root.attributes["harrow.anomaly.lost-write"] == 3
    assert root.attributes["test.case.result.status"] == "fail"
    assert root.status.status_code is StatusCode.ERROR
    assert root.status.description == "VerdictError: INVALID"


def test_a_test_that_passed_with_a_verdict_is_ok(exporter: InMemorySpanExporter, run: Any) -> None:
    assert exported(exporter, run, "passed")["t.py::test"].status.status_code is StatusCode.OK


def test_elections_are_events_of_the_block_in_which_they_happened(exporter: InMemorySpanExporter, run: Any) -> None:
    spans = exported(exporter, run, "passed")
    (elected,) = spans["chaos"].events
    assert elected.name == "leader elected"
    assert dict(elected.attributes or {}) == {
        "harrow.broker": "broker-1",
        "harrow.topic": "orders",
        "harrow.partition": 0,
        "harrow.leader": 1,
        "harrow.leader_epoch": 0,
        "harrow.isr": (1,),
    }
    assert [event.name for event in spans["t.py::test"].events] == ["ISR changed"]


def test_without_a_provider_nothing_is_exported_and_opentelemetry_is_not_imported() -> None:
    code = (
        "import sys; from harrow.harness.plugin import hooks, telemetry; print(telemetry.is_configured(), "
        "[name for name in sys.modules if name.startswith('opentelemetry')]); "
        "import opentelemetry.trace; print(telemetry.is_configured()); "
        "from opentelemetry.sdk.trace import TracerProvider; "
        "opentelemetry.trace.set_tracer_provider(TracerProvider()); print(telemetry.is_configured())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split("\n")[:3] == ["False []", "False", "True"]
