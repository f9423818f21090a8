"""The doubts of `kernels/overlap.py` and `kernels/refusals.py` in plain Python, against which they are tested (L6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harrow.cluster.host.seam import PREPARE_COMMIT
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED

Row = Mapping[str, Any]
Span = tuple[int, int]


def operation_spans(
    ops: Sequence[Row],
    batches: Sequence[Row],
    *,
    started_ns: int,
    own_clients: Sequence[int],
    transactions: Sequence[Row] = (),
) -> list[Span]:
    """Return when each operation began and ended; `transactions`: the states that coordinators recorded."""
    spans: list[Span] = []
    for row in ops:
        sent = row["kind"] == OperationFunction.SEND
        happened = row["outcome"] in (OperationType.OK, OperationType.INFO)
        read = row["kind"] in (OperationFunction.POLL, OperationFunction.COMMIT)
        if row["source"] != DRAINED and ((sent and happened) or read):
            spans.append((row["invoked_ns"], row["time_ns"]))
    produced = [row for row in batches if row["kind"] == 1]
    earliest = started_ns or min((row["invoked_ns"] for row in produced), default=0)
    for row in produced:
        possible = row["created_ns"] >= earliest
        began = min(row["created_ns"], row["invoked_ns"]) if possible else row["invoked_ns"]
        spans.append((began, row["completed_ns"]))
    spans += [
        (row["invoked_ns"], row["completed_ns"])
        for row in batches
        if row["kind"] == 2 and row["client"] not in own_clients
    ]
    for decided in transactions:
        answered = [
            row["completed_ns"]
            for row in produced
            if row["producer_id"] == decided["producer_id"] and row["completed_ns"] <= decided["time_ns"]
        ]
        if decided["state"] == PREPARE_COMMIT and answered:
            spans.append((max(answered), decided["time_ns"]))
    return spans


def met(spans: Sequence[Span], windows: Sequence[Span]) -> tuple[list[int], int]:
    """Return how many operations met each fault, and how many met any."""

    def overlap(span: Span, window: Span) -> bool:
        return span[0] <= window[1] and span[1] >= window[0]

    each = [sum(overlap(span, window) for span in spans) for window in windows]
    return each, sum(any(overlap(span, window) for window in windows) for span in spans)


def refused_records(
    ops: Sequence[Row], pending: Sequence[Row], batches: Sequence[Row], *, identify: bool
) -> dict[int, int]:
    """Return for each client how many refused records cannot have been sent again; `identify`: by their timestamps."""
    final = {r["offset"]: r for r in reversed(ops) if r["source"] == DRAINED and r["kind"] == OperationFunction.POLL}
    produced = [row for row in batches if row["kind"] == 1 and row["count"] > 0]
    appended = [row for row in produced if not row["error"] or row["base_offset"] >= 0]
    numbers = {_sequence(row) for row in appended if row["producer_id"] >= 0}
    crcs = {row["crc"] for row in appended}
    unsure: int = sum(
        row["kind"] == OperationFunction.SEND and row["outcome"] == OperationType.INFO and row["source"] != DRAINED
        for row in ops
    ) + len(pending)
    lacking: dict[int, int] = {}
    for row in produced:
        is_refused = row["error"] not in (0, 48, 49, 90, 120) and row["base_offset"] < 0
        if not is_refused or _sequence(row) in numbers or row["crc"] in crcs:
            continue
        first = min(
            other["completed_ns"]
            for other in produced
            if other["error"] == row["error"] and _sent(other) == _sent(row) and other["base_offset"] < 0
        )
        accounted = _later(appended, row, first)
        if identify:
            accounted = max(accounted, _with_its_timestamps(appended, row, final))
        left = row["count"] - accounted - unsure
        if left > 0:
            lacking[row["client"]] = max(left, lacking.get(row["client"], 0))
    return lacking


def _sequence(row: Row) -> tuple[int, int, int]:
    return row["producer_id"], row["producer_epoch"], row["base_sequence"]


def _sent(row: Row) -> tuple[int, int, int, int]:
    return row["client"], row["base_timestamp_ms"], row["max_timestamp_ms"], row["count"]


def _later(appended: Sequence[Row], refused: Row, since_ns: int) -> int:
    return sum(
        row["count"]
        for row in appended
        if row["client"] == refused["client"] and row["completed_ns"] >= since_ns and row["base_offset"] >= 0
    )


def _with_its_timestamps(appended: Sequence[Row], refused: Row, final: Mapping[int, Row]) -> int:
    others = [row for row in appended if row["client"] != refused["client"] and row["base_offset"] >= 0]
    return sum(
        refused["base_timestamp_ms"] <= record["timestamp_ms"] <= refused["max_timestamp_ms"]
        and not any(row["base_offset"] <= offset <= row["last_offset"] for row in others)
        for offset, record in final.items()
    )
