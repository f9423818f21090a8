"""The report page of a run: one self-contained HTML file, made from the run folder.

Owns: the page's model (a JSON object in the page), and its combination with `page.html`, `page.css` and `page.js`. The
page uses no network and no library. Its size is bounded for any history: about 600 time buckets, 40 partition lanes,
60 anomalies of 12 operations each. May fail: OSError when the page cannot be written. When a file of the run is missing
or incomplete, the page states which data it does not have.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from .. import run_folder
from ..checks.traces import planted_bugs
from ..histories.recorded_faults import RecordedFault
from .beside import lanes_beside
from .evidence import evidence_text
from .findings import verdict_model
from .page_model import CountsModel, FaultModel, PageModel, TrafficModel, VerdictModel
from .recorded_run import RecordedRun
from .terms import explained
from .timeline import Timeline
from .traffic import TrafficSeries, TrafficSource, chunks, completions, span

BUCKETS_MOST = 600
FAULTS_MOST = 200
MARGIN = 0.03
"""Of the drawn time, empty before the first event."""
EMPTY_LEAST = 0.1
"""A shorter share of empty time at the beginning is drawn."""
NICE_MS = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))


def write_picture(folder: Path, *, seed: int | None = None, command: str | None = None, number: int = 1) -> Path:
    """Write the page of the `number`-th verdict (`report.html`, `report-2.html`) into `folder`; return its path.

    The page shows `seed` and `command` (the command that repeats the run); the defaults are those of `run.json` or
    of the schedule.
    """
    folder = Path(folder)
    model = build_model(folder, seed=seed, command=command, number=number)
    target = folder / run_folder.numbered(run_folder.REPORT, number)
    partial = target.with_suffix(".html.partial")
    partial.write_text(render(model), encoding="utf-8")
    partial.replace(target)
    return target


def render(model: PageModel) -> str:
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


def build_model(folder: Path, *, seed: int | None = None, command: str | None = None, number: int = 1) -> PageModel:
    """Return all data of the page as JSON values; times are seconds since the start of the run."""
    run = RecordedRun(folder, number)
    sources = completions(folder)
    begin_ns, end_ns = _bounds(run, span(sources))
    bucket_ns, buckets = _buckets(end_ns - begin_ns)
    traffic = _traffic(sources, begin_ns, bucket_ns, buckets)
    timeline = Timeline(begin_ns, end_ns, bucket_ns)
    timeline.read(run)
    verdict = verdict_model(run.verdict, timeline.seconds, run.wall_to_ns())
    marked = {anomaly["place"] for anomaly in verdict["anomalies"]} if verdict else set[str]()
    lanes, hidden = timeline.partition_lanes(marked)
    faults = run.faults[:FAULTS_MOST]
    seed = run.seed if seed is None else seed
    return {
        "title": run.title(command),
        "folder": str(folder.resolve()),
        "planted": list(planted_bugs(folder)),
        "seed": None if seed is None else str(seed),
        "security": run.about.get("security"),
        "command": command or run.about.get("command"),
        "duration": timeline.end_s,
        "from": _drawn_from(traffic, timeline, faults, verdict),
        "empty": not sources and not run.traces,
        "verdict": verdict,
        "words": _words(verdict),
        "traffic": traffic,
        "counts": _counts(verdict, traffic),
        "faults": [_fault_row(fault, timeline) for fault in faults],
        "faults_hidden": len(run.faults) - len(faults),
        "brokers": timeline.brokers(),
        "controller": timeline.controller(),
        "beside": lanes_beside(run.faults, run.program_ends, timeline.seconds, timeline.end_s),
        "partitions": lanes,
        "partitions_hidden": hidden,
        "internal_partitions": len(timeline.internal),
        "elections": timeline.elections,
        "controller_elections": timeline.controller_elections,
    }


def _bounds(run: RecordedRun, traffic: tuple[int, int] | None) -> tuple[int, int]:
    """Return the start of the test and the last time that was recorded.

    A shared cluster recorded events of earlier tests too: they are before the start, and the page omits them.
    """
    times = run.times() + list(traffic or ())
    begin_ns = run.started_ns or min(times, default=0)
    if not times:
        return begin_ns, begin_ns + 1_000_000_000
    return begin_ns, max(*times, begin_ns + 1_000_000)


def _words(verdict: VerdictModel | None) -> list[tuple[str, str]]:
    if verdict is None:
        return explained("", (), ())
    kinds = [kind["name"] for kind in verdict["kinds"]]
    return explained(verdict["status"], verdict["guarantees"], kinds)


def _drawn_from(
    traffic: TrafficModel, timeline: Timeline, faults: Sequence[RecordedFault], verdict: VerdictModel | None
) -> float:
    """Return where the time axis begins, in seconds: just before the first record, fault, dead broker or anomaly.

    Before that the brokers start, and the test creates topics. 0 where that takes less than a tenth of the run.
    """
    rates = (traffic["acked"], traffic["delivered"], traffic["failed"])
    busy = [next((k * traffic["dt"] for k, rate in enumerate(of) if rate), None) for of in rates]
    times = [at for at in busy if at is not None]
    times += [timeline.seconds(fault.begin_ns) for fault in faults]
    times += [down for broker in timeline.brokers() for down, _ in timeline.down(broker["id"])]
    times += [at for row in (verdict["anomalies"] if verdict else ()) if (at := row["t"]) is not None]
    first = max(0.0, min(times, default=0.0))
    begin = first - (timeline.end_s - first) * MARGIN
    return round(begin, 4) if begin > timeline.end_s * EMPTY_LEAST else 0.0


def _counts(verdict: VerdictModel | None, traffic: TrafficModel) -> CountsModel:
    """Return the records of the whole run, from the recorders or, for other clients, from the brokers' taps."""
    judged = verdict["operation_counts"] if verdict else {}
    totals = traffic["totals"]
    return {
        "acknowledged": judged.get("acknowledged") or judged.get("records_acknowledged_on_the_wire") or totals["acked"],
        "delivered": judged.get("read") or totals["delivered"],
        "unacknowledged": judged.get("unacknowledged") or totals["failed"],
    }


def _buckets(duration_ns: int) -> tuple[int, int]:
    """Return the width (a round number of milliseconds) and the number (at most 600) of the time buckets."""
    for width_ms in NICE_MS:
        if duration_ns <= width_ms * 1_000_000 * BUCKETS_MOST:
            break
    else:
        width_ms = -(-duration_ns // (BUCKETS_MOST * 1_000_000))
    width_ns = max(width_ms, 10) * 1_000_000
    return width_ns, duration_ns // width_ns + 1


def _traffic(sources: list[TrafficSource], begin_ns: int, bucket_ns: int, buckets: int) -> TrafficModel:
    traffic = TrafficSeries(begin_ns, bucket_ns, buckets)
    for completed in chunks(sources):
        traffic.add(completed)
    names = {what: source.name for source in sources for what in source.what}
    return {
        "source": names.get("acked") or names.get("delivered") or "none",
        "delivered_source": names.get("delivered", "none"),
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


def _fault_row(fault: RecordedFault, timeline: Timeline) -> FaultModel:
    return {
        "id": fault.id,
        "kind": fault.kind,
        "label": fault.label,
        "nodes": list(fault.nodes),
        "beside": None if fault.beside is None else " ".join(fault.beside),
        "s": timeline.seconds(fault.begin_ns),
        "effect": None if fault.effect_ns is None else timeline.seconds(fault.effect_ns),
        "e": timeline.end_s if fault.end_ns is None else timeline.seconds(fault.end_ns),
        "healed": fault.end_ns is not None,
        "skipped": fault.skipped,
        "evidence": evidence_text(fault.evidence),
    }


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
