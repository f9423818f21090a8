"""The report page of a run: one self-contained HTML file, made from the run folder.

Owns: the page's model (a JSON object in the page), and its combination with `page.html`, `page.css` and `page.js`. The
page uses no network and no library. Its size is bounded for any history: about 600 time buckets, 40 partition lanes,
25 anomalies of 12 operations each. May fail: OSError when the page cannot be written. When a file of the run is missing
or incomplete, the page states which data it does not have.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from .. import run_folder
from ..checks.traces import planted_bugs
from ..checks.verdict import SCHEMA_VERSION
from ..histories.recorded_faults import RecordedFault, Row
from .recorded_run import RecordedRun
from .timeline import Timeline
from .traffic import TrafficSeries, chunks, completions, span

BUCKETS_MOST = 600
ANOMALIES_MOST = 25
OPERATIONS_MOST = 12
FAULTS_MOST = 200
OTHER_VERSION = (
    "verdict.json has schema version {version}, this Harrow reads version "
    f"{SCHEMA_VERSION}: judge the run folder again with `harrow check`"
)
NICE_MS = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))


def write_picture(folder: Path, *, seed: int | None = None, command: str | None = None) -> Path:
    """Write `report.html` into `folder` and return its path.

    The page shows `seed` and `command` (the command that repeats the run); the defaults are those of `run.json` or
    of the schedule.
    """
    folder = Path(folder)
    model = build_model(folder, seed=seed, command=command)
    target = folder / run_folder.REPORT
    partial = folder / "report.html.partial"
    partial.write_text(render(model), encoding="utf-8")
    partial.replace(target)
    return target


def render(model: Row) -> str:
    """Return the HTML page that contains `model`."""
    assets = resources.files(__package__ or "harrow.harness.reports")
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    # Only "<" could end the <script> element; its escape is the same JSON.
    data = json.dumps(model, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "%STYLE%": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "%SCRIPT%": assets.joinpath("page.js").read_text(encoding="utf-8"),
        "%TITLE%": _escape(str(model["title"])),
        "%DATA%": data,  # last, because its text may contain a placeholder
    }
    for name, text in parts.items():
        page = page.replace(name, text)
    return page


def build_model(folder: Path, *, seed: int | None = None, command: str | None = None) -> Row:
    """Return all data of the page as JSON values; times are seconds since the start of the run."""
    run = RecordedRun(folder)
    source, paths = completions(folder)
    begin_ns, end_ns = _bounds(run, span(source, paths))
    bucket_ns, buckets = _buckets(end_ns - begin_ns)
    timeline = Timeline(begin_ns, end_ns, bucket_ns)
    timeline.read(run)
    lanes, hidden = timeline.partition_lanes()
    faults = run.faults[:FAULTS_MOST]
    return {
        "title": run.about.get("test") or folder.resolve().name,
        "folder": str(folder.resolve()),
        "planted": list(planted_bugs(folder)),
        "seed": run.seed if seed is None else seed,
        "command": command or run.about.get("command"),
        "duration": timeline.end_s,
        "empty": source == "none" and not run.traces,
        "verdict": verdict_model(run.verdict),
        "traffic": _traffic(source, paths, begin_ns, bucket_ns, buckets),
        "faults": [_fault_row(fault, timeline) for fault in faults],
        "faults_hidden": len(run.faults) - len(faults),
        "brokers": timeline.brokers(),
        "controller": timeline.controller(),
        "partitions": lanes,
        "partitions_hidden": hidden,
        "internal_partitions": len(timeline.internal),
        "elections": timeline.elections,
        "controller_elections": timeline.controller_elections,
    }


def _bounds(run: RecordedRun, traffic: tuple[int, int] | None) -> tuple[int, int]:
    times = run.times() + list(traffic or ())
    if not times:
        return 0, 1_000_000_000
    return min(times), max(*times, min(times) + 1_000_000)


def _buckets(duration_ns: int) -> tuple[int, int]:
    """Return the width (a round number of milliseconds) and the number (at most 600) of the time buckets."""
    for width_ms in NICE_MS:
        if duration_ns <= width_ms * 1_000_000 * BUCKETS_MOST:
            break
    else:
        width_ms = -(-duration_ns // (BUCKETS_MOST * 1_000_000))
    width_ns = max(width_ms, 10) * 1_000_000
    return width_ns, duration_ns // width_ns + 1


def _traffic(source: str, paths: list[Path], begin_ns: int, bucket_ns: int, buckets: int) -> Row:
    traffic = TrafficSeries(begin_ns, bucket_ns, buckets)
    for completed in chunks(source, paths):
        traffic.add(completed)
    return {
        "source": source,
        "dt": bucket_ns / 1e9,
        "acked": traffic.rates("acked"),
        "delivered": traffic.rates("delivered"),
        "failed": traffic.rates("failed"),
        "p50": traffic.quantile(0.5),
        "p99": traffic.quantile(0.99),
        "totals": {what: traffic.total(what) for what in traffic.counts},
        "p50_all": traffic.overall(0.5),
        "p99_all": traffic.overall(0.99),
    }


def _fault_row(fault: RecordedFault, timeline: Timeline) -> Row:
    return {
        "id": fault.id,
        "kind": fault.kind,
        "label": fault.label,
        "nodes": list(fault.nodes),
        "s": timeline.seconds(fault.begin_ns),
        "effect": None if fault.effect_ns is None else timeline.seconds(fault.effect_ns),
        "e": timeline.end_s if fault.end_ns is None else timeline.seconds(fault.end_ns),
        "healed": fault.end_ns is not None,
        "skipped": fault.skipped,
        "evidence": json.dumps(fault.evidence)[:400] if fault.evidence else "",
    }


def verdict_model(verdict: Row | None) -> Row | None:
    """Return `verdict.json` with shortened lists and the number of omitted entries."""
    if verdict is None:
        return None
    version = verdict.get("schema_version")
    if version != SCHEMA_VERSION:
        verdict = {"reasons": [OTHER_VERSION.format(version=version)]}
    anomalies: list[Row] = list(verdict.get("anomalies") or ())
    shown = [_anomaly_row(anomaly) for anomaly in anomalies[:ANOMALIES_MOST]]
    return {
        "status": str(verdict.get("status", "unknown")),
        "guarantees": list(verdict.get("guarantees") or ()),
        "guarantee_reason": verdict.get("guarantee_reason"),
        "operation_counts": verdict.get("operation_counts") or {},
        "anomaly_counts": verdict.get("anomaly_counts") or {},
        "reasons": list(verdict.get("reasons") or ())[:ANOMALIES_MOST],
        "notes": list(verdict.get("notes") or ())[:ANOMALIES_MOST],
        "elapsed_ms": verdict.get("elapsed_ms"),
        "anomalies": shown,
        "anomalies_hidden": len(anomalies) - len(shown),
    }


def _anomaly_row(anomaly: Row) -> Row:
    operations: list[Any] = list(anomaly.get("operations") or ())
    offsets: list[Any] = list(anomaly.get("offsets") or ())
    return {
        "name": anomaly.get("name"),
        "topic": anomaly.get("topic"),
        "partition": anomaly.get("partition"),
        "explanation": str(anomaly.get("explanation", ""))[:2_000],
        "offsets": offsets[:OPERATIONS_MOST],
        "offsets_hidden": max(0, len(offsets) - OPERATIONS_MOST),
        "operations": operations[:OPERATIONS_MOST],
        "operations_hidden": max(0, len(operations) - OPERATIONS_MOST),
    }


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
