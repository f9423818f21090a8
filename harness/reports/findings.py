"""What the page shows of a verdict: each kind of anomaly in words, and the first anomalies with their operations.

Owns the bounds of this part: `ANOMALIES_MOST` anomalies, of every kind some, with `OPERATIONS_MOST` operations. All
numbers of operations are texts, because a number in JavaScript is exact only up to 2^53. An anomaly has the time at
which its mark is drawn on the lane of its partition: the first time of its operations, else Kafka's timestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..checks.known_anomalies import described
from ..checks.rows import OperationRow, ProgressRow
from ..checks.verdict import SCHEMA_VERSION, Status, Verdict
from ..checks.verdict_text import (
    breaks,
    causes_of_kinds,
    event_text,
    kinds_by_severity,
    other_fields,
    row_place,
    shortened,
)
from ..histories.recorded_faults import Row
from .page_model import AnomalyModel, KindModel, ProgressModel, StoredAnomaly, VerdictModel

ANOMALIES_MOST = 60
OPERATIONS_MOST = 12
PROGRESS_MOST = 60
"""Rows of the table of faults and clients."""
LISTED_MOST = 25
"""Reasons and notes."""
TEXT_MOST = 2_000
CELL_MOST = 300
OTHER_VERSION = (
    "verdict.json has schema version {version}, this Harrow reads version "
    f"{SCHEMA_VERSION}: judge the run folder again with `harrow check`"
)
Place = Callable[[int], float]
"""From a time of the monotonic clock to seconds since the start."""
WallClock = Callable[[int], int]
"""From milliseconds since 1970 to a time of the monotonic clock."""


def verdict_model(
    verdict: Row | None, seconds: Place | None = None, wall_to_ns: WallClock | None = None
) -> VerdictModel | None:
    """Return the verdict for the page, with shortened lists and the number of omitted entries.

    `verdict`: the object in verdict.json. `seconds` places the marks; `wall_to_ns` converts Kafka's timestamps.
    """
    if verdict is None:
        return None
    version = verdict.get("schema_version")
    if version != SCHEMA_VERSION:
        verdict = {"reasons": [OTHER_VERSION.format(version=version)]}
    known = _verdict(verdict)
    stored: list[StoredAnomaly] = list(verdict.get("anomalies") or ())
    shown, each = _some_of_each_kind(stored)
    kinds = kinds_by_severity(known)
    causes = causes_of_kinds(known, kinds)
    return {
        "status": known.status.value,
        "guarantees": list(known.guarantees),
        "guarantee_reason": known.guarantee_reason,
        "operation_counts": dict(known.operation_counts),
        "kinds": [_kind(known, name, causes[name]) for name in kinds],
        "reasons": [shortened(text, TEXT_MOST) for text in known.reasons[:LISTED_MOST]],
        "notes": [shortened(text, TEXT_MOST) for text in known.notes[:LISTED_MOST]],
        "elapsed_ms": known.elapsed_ms,
        "anomalies": [_anomaly(row, known.started_ns, seconds, wall_to_ns) for row in shown],
        "anomalies_hidden": len(stored) - len(shown),
        "anomalies_each": each,
        "reasons_hidden": max(0, len(known.reasons) - LISTED_MOST),
        "notes_hidden": max(0, len(known.notes) - LISTED_MOST),
        "progress": [_progress(row) for row in (verdict.get("progress") or ())[:PROGRESS_MOST]],
    }


def _progress(row: ProgressRow) -> ProgressModel:
    """Return a row of the table of faults and clients, with the words of its reasons."""
    from ..checks.progress.words import WENT_ON, reasons

    return {
        "fault": shortened(str(row["fault"]), CELL_MOST),
        "label": shortened(str(row["label"]), CELL_MOST),
        "kind": shortened(str(row["kind"]), CELL_MOST),
        "client": shortened(str(row["client"]), CELL_MOST),
        "partition": shortened(str(row["partition"]), CELL_MOST),
        "without_progress_s": row["without_progress_s"],
        "recovered_s": row["recovered_s"],
        "recovered": row["recovered"],
        "cluster_could_not_serve_s": row["cluster_could_not_serve_s"],
        "stalled_s": row["stalled_s"],
        "why": reasons(row) if row["without_progress_s"] else WENT_ON,
    }


def _verdict(data: Row) -> Verdict:
    """Return the verdict without its anomalies; what a damaged file lacks is empty."""
    status = str(data.get("status"))
    return Verdict(
        status=Status(status) if status in list(Status) else Status.UNKNOWN,
        guarantees=tuple(data.get("guarantees") or ()),
        guarantee_reason=data.get("guarantee_reason"),
        operation_counts=data.get("operation_counts") or {},
        anomaly_counts=data.get("anomaly_counts") or {},
        causes=data.get("causes") or {},
        reasons=tuple(map(str, data.get("reasons") or ())),
        notes=tuple(map(str, data.get("notes") or ())),
        added_guarantees=data.get("added_guarantees") or {},
        started_ns=int(data.get("started_ns") or 0),
        elapsed_ms=float(data.get("elapsed_ms") or 0),
    )


def _kind(verdict: Verdict, name: str, causes: Sequence[str]) -> KindModel:
    return {
        "name": name,
        "count": verdict.anomaly_counts[name],
        "text": described(name, verdict.anomaly_counts[name]),
        "allowed": not breaks(name, verdict),
        "causes": [shortened(cause, TEXT_MOST) for cause in causes],
    }


def _some_of_each_kind(anomalies: Sequence[StoredAnomaly]) -> tuple[list[StoredAnomaly], int]:
    """Return at most `ANOMALIES_MOST`, the same number of each kind as far as there are so many, in their order.

    The second value is the most of each kind.
    """
    kinds = Counter(str(anomaly.get("name")) for anomaly in anomalies)
    each = max(3, ANOMALIES_MOST // max(1, len(kinds)))
    seen = Counter[str]()
    shown: list[StoredAnomaly] = []
    for anomaly in anomalies:
        name = str(anomaly.get("name"))
        seen[name] += 1
        if seen[name] <= each:
            shown.append(anomaly)
    return shown[:ANOMALIES_MOST], each


def _anomaly(
    anomaly: StoredAnomaly, started_ns: int, seconds: Place | None, wall_to_ns: WallClock | None
) -> AnomalyModel:
    operations = list(anomaly.get("operations") or ())
    offsets = list(dict.fromkeys(anomaly.get("offsets") or ()))
    time_ns = _time(operations, wall_to_ns)
    topic, partition = anomaly.get("topic"), anomaly.get("partition", -1)
    return {
        "name": anomaly.get("name"),
        "place": f"{topic}-{partition}" if partition is not None and partition >= 0 else topic or "cluster",
        "records": int(anomaly.get("records", 1)),
        "explanation": shortened(str(anomaly.get("explanation", "")), TEXT_MOST),
        "offsets": [str(offset) for offset in offsets[:OPERATIONS_MOST]],
        "offsets_hidden": max(0, len(offsets) - OPERATIONS_MOST),
        "t": None if time_ns is None or seconds is None else max(0.0, seconds(time_ns)),
        "operations": [_operation(row, started_ns) for row in operations[:OPERATIONS_MOST]],
        "operations_hidden": max(0, len(operations) - OPERATIONS_MOST),
    }


def _operation(row: OperationRow, started_ns: int) -> dict[str, str]:
    """Return the cells of one operation."""
    fields = dict(other_fields(row))
    cells = {
        "what": event_text(row, started_ns),
        "where": row_place(row),
        "key": str(row["key"]) if "key" in row else "",
        "value": str(row["value"]) if "value" in row else "",
        "id": fields.pop("record id", ""),
        "client": fields.pop("client", ""),
    }
    cells["more"] = ", ".join(f"{name} {text}" for name, text in fields.items())
    if "value" not in row and "value_hash" in row:
        cells["value"] = f"(hash {row['value_hash']})"
    return {name: shortened(text, CELL_MOST) for name, text in cells.items()}


def _time(operations: Sequence[OperationRow], wall_to_ns: WallClock | None) -> int | None:
    """Return when an anomaly began: the first time of its operations."""
    times = [
        at_ns
        for row in operations
        for at_ns in (row.get("completed_ns"), row.get("time_ns"), row.get("t_ns"), row.get("invoked_ns"))
        if isinstance(at_ns, int) and at_ns > 0 and row.get("operation") != "final read"
    ]
    if times:
        return min(times)
    stamps = [at_ms for row in operations if isinstance(at_ms := row.get("timestamp_ms"), int) and at_ms > 0]
    return wall_to_ns(min(stamps)) if stamps and wall_to_ns is not None else None
