"""The checks of `kernels/unsent_batches.py` and of batches in `kernels/real_time.py` in plain Python.

Written from the definitions in those modules' heads, sharing no code with them. Rows are dicts of `BATCH_SCHEMA` and
`segments.LOG_COLUMNS`. An anomaly is `(name, offsets)`, offsets in ascending order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from .log_changes import LogChanges

Row = Mapping[str, Any]
Found = tuple[str, tuple[int, ...]]
Logs = Mapping[int, Sequence[Row]]
APPEND_TIME, CONTROL = 0x08, 0x20
SECOND_NS = 10**9
BEFORE_APPENDING = {2, 3, 10, 17, 18, 19, 21, *range(29, 33), 35, *range(42, 46), 47, 48, 49, 53} | {
    59,
    76,
    87,
    90,
    120,
}


def batches_out_of_place(
    produced: Sequence[Row],
    logs: Logs,
    final: Mapping[int, Row] | None,
    failed: Sequence[Row],
    acked: Sequence[Row],
    *,
    changes: LogChanges,
    low: int,
    end_ns: int,
    whole_taps: Collection[int],
) -> Iterator[Found]:
    """Yield what both checks find; `failed`, `acked`: recorded sends."""
    if final is None:
        return
    leaders = {row.leader for row in changes.leaderships}
    every = bool(leaders) and leaders <= set(whole_taps) and not changes.created_ns
    recorded = {row["offset"] for row in acked}
    yield from late_batches(produced, logs, final, recorded, every_request=every)
    if not changes.created_ns:
        yield from unsent_batches(
            produced, logs, final, failed, changes=changes, low=low, end_ns=end_ns, whole_taps=whole_taps
        )


def unsent_batches(
    produced: Sequence[Row],
    logs: Logs,
    final: Mapping[int, Row],
    failed: Sequence[Row],
    *,
    changes: LogChanges,
    low: int,
    end_ns: int,
    whole_taps: Collection[int],
) -> Iterator[Found]:
    """Yield the batches of the logs that no request can have appended."""
    failures = {(row["key_hash"], row["value_hash"]) for row in failed}
    settled = [
        row["base_offset"] for row in produced if row["base_offset"] >= 0 and row["completed_ns"] <= end_ns - SECOND_NS
    ]
    others = [row for row in produced if not _is_refused(row)]
    crcs = {batch["crc"] for log in logs.values() for batch in log}
    sizes = {row["count"] for row in others if row["crc"] not in crcs}
    seen: set[int] = set()
    for batch in (batch for log in logs.values() for batch in log):
        base, last = batch["base_offset"], batch["last_offset"]
        if not _is_judged(batch, changes, whole_taps) or base < low or base in seen:
            continue
        if last >= max(settled, default=0):
            continue
        seen.add(base)
        content = [final[at] for at in range(base, last + 1) if at in final]
        if not content or any((row["key_hash"], row["value_hash"]) in failures for row in content):
            continue
        if any(0 <= row["base_offset"] <= base <= row["last_offset"] for row in produced):
            continue
        if batch["count"] in sizes or any(_same(batch, row) for row in others):
            continue
        name = "failed-write" if any(_same(batch, row) for row in produced) else "unknown-origin"
        yield name, (base, last)


def _is_refused(row: Row) -> bool:
    return row["base_offset"] < 0 and row["error"] in BEFORE_APPENDING


def _is_judged(batch: Row, changes: LogChanges, whole_taps: Collection[int]) -> bool:
    if batch["attributes"] & (CONTROL | APPEND_TIME) or batch["base_offset"] < changes.cleaned_end:
        return False
    of_epoch = [row for row in changes.leaderships if row.leader_epoch == batch["leader_epoch"]]
    if len({row.leader for row in of_epoch}) != 1 or of_epoch[0].leader not in whole_taps:
        return False
    return bool(batch["base_offset"] >= min(of_epoch, key=lambda row: row.t_ns).log_end)


def _same(batch: Row, row: Row) -> bool:
    return bool(batch["crc"] == row["crc"] or (row["producer_id"] >= 0 and _sequence(batch) == _sequence(row)))


def _sequence(row: Row) -> tuple[int, int, int]:
    return row["producer_id"], row["producer_epoch"], row["base_sequence"]


def late_batches(
    produced: Sequence[Row], logs: Logs, final: Mapping[int, Row], recorded: Collection[int], *, every_request: bool
) -> Iterator[Found]:
    """Yield batches that were received after a batch with a higher offset was acknowledged, with the first of these.

    `recorded`: offsets of recorded sends; `every_request`: the taps have every request with a batch.
    """
    versions: dict[int, set[int]] = {}
    for batch in (batch for log in logs.values() for batch in log):
        versions.setdefault(batch["last_offset"], set()).add(batch["crc"])
    times: dict[tuple[int, int], tuple[int, int, int]] = {}
    for row in produced:
        key = row["last_offset"], row["crc"]
        if row["error"] or versions.get(row["last_offset"]) != {row["crc"]} or row["base_offset"] not in final:
            continue
        began = row["invoked_ns"]
        if row["producer_id"] >= 0:
            again = [other["invoked_ns"] for other in produced if _sequence(other) == _sequence(row)]
            began = min(again) if every_request else 0
        base, first, ended = times.get(key, (row["base_offset"], began, row["completed_ns"]))
        times[key] = (min(base, row["base_offset"]), min(first, began), max(ended, row["completed_ns"]))
    for (last, _), (base, began, _) in times.items():
        higher = [(ended, other) for other, _, ended in times.values() if other > base]
        if higher and min(higher)[0] < began and not any(base <= at <= last for at in recorded):
            yield "realtime-order", (base, min(higher)[1])
